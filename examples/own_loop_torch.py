"""Profile your own PyTorch loop: three lines more than without."""

import torch
from torch import nn

import tbdprof

model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 32 * 32, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

with tbdprof.profile(model, optimizer, warmup=5, steps=10) as prof:
    for _ in range(40):
        images, labels = torch.rand(16, 3, 32, 32), torch.randint(10, (16,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        prof.step(len(images))

print(prof)
