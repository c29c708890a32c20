"""Say how long each part lasts, repeat the windows, and switch it all off: what production loops ask for."""

import os

import torch
from torch import nn

import tbdprof

model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 8))
optimizer = torch.optim.AdamW(model.parameters())
enabled = os.environ.get("PROFILE", "1") == "1"  # with PROFILE=0 nothing is recorded, and nothing costs

with tbdprof.profile(model, optimizer, warmup=5, steps=5, repeat=2, enabled=enabled) as prof:
    for _ in range(50):
        batch = torch.rand(64, 32)
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        prof.step(len(batch))

print(prof)
