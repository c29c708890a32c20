"""A script that knows nothing of tbdprof: `tbdprof run -- python examples/unchanged_train.py`."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for _ in range(60):
    batch = torch.rand(32, 64)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch), batch)
    loss.backward()
    optimizer.step()

print(f"final loss {loss.item():.4f}")
