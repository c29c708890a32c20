"""A loop that raises: the exception comes through unchanged, and what was recorded until then is kept."""

import torch
from torch import nn

import tbdprof

model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

try:
    with tbdprof.profile(model, optimizer, warmup=3, steps=3, output="failing_loop.tbd", force=True) as prof:
        for iteration in range(100):
            width = 16 if iteration < 9 else 17  # the data is broken from here on
            optimizer.zero_grad()
            model(torch.rand(8, width)).sum().backward()
            optimizer.step()
            prof.step(8)
except RuntimeError as error:
    print(f"training failed: {error}")

print(prof)
