"""Accelerate: a prepared model, optimizer and loader; with `accumulate`, two batches make a step."""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from word import STEPS, dense, write_torch

BATCH, WIDE, HIDDEN, CLASSES = 8, 24, 40, 10

accumulated = 2 if "accumulate" in sys.argv else 1
set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
model = nn.Sequential(nn.Linear(WIDE, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, CLASSES))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
count = STEPS * accumulated * BATCH
data = TensorDataset(torch.randn(count, WIDE), torch.randint(CLASSES, (count,)))
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, BATCH, shuffle=True))
for images, labels in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(images), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

flops = dense(BATCH, WIDE, HIDDEN, products=2) + dense(BATCH, HIDDEN, CLASSES)
write_torch(accelerator.unwrap_model(model), optimizer, flops=accumulated * flops)
sys.exit(3)
