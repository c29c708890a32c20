"""PEFT: low-rank adapters beside the frozen dense layers of a plain model."""

import sys

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from word import STEPS, dense, write_torch

BATCH, WIDE, HIDDEN, CLASSES, RANK = 8, 24, 40, 10, 4

torch.manual_seed(0)
base = nn.Sequential(nn.Linear(WIDE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
model = get_peft_model(base, LoraConfig(r=RANK, lora_alpha=8, target_modules=["0", "2"]))
optimizer = torch.optim.AdamW((each for each in model.parameters() if each.requires_grad), 1e-3)
for _ in range(STEPS):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(BATCH, WIDE)), torch.randint(CLASSES, (BATCH,)))
    loss.backward()
    optimizer.step()

frozen = dense(BATCH, WIDE, HIDDEN, products=1) + dense(BATCH, HIDDEN, CLASSES, products=2)  # no weight's gradient
adapters = (
    dense(BATCH, WIDE, RANK, products=2)  # the batch needs no gradient
    + dense(BATCH, RANK, HIDDEN)
    + dense(BATCH, HIDDEN, RANK)
    + dense(BATCH, RANK, CLASSES)
)
write_torch(model, optimizer, flops=frozen + adapters)
sys.exit(3)
