"""Loops planted to be bound by one thing each: the next batch, launching, or matrix products."""

import time
from collections.abc import Iterator

import torch
from judges.process import Json, Profile
from torch import Tensor, nn
from torch.nn import functional

STEPS = 16


def starved(profile: Profile) -> Json:
    """Train on batches that a slow loader hands out."""

    def batches() -> Iterator[Tensor]:
        for _ in range(STEPS):
            time.sleep(0.05)
            yield torch.ones(8, 64)

    return _train(profile, nn.Linear(64, 64), batches())


def tiny(profile: Profile) -> Json:
    """Train hundreds of layers of one value each."""
    model = nn.Sequential(*(layer for _ in range(100) for layer in (nn.Linear(1, 1), nn.Tanh())))
    return _train(profile, model, (torch.ones(1, 1) for _ in range(STEPS)))


def products(profile: Profile) -> Json:
    """Train dense layers of a thousand values on as many samples."""
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(4)))
    return _train(profile, model, (torch.ones(1024, 1024) for _ in range(STEPS)))


def _train(profile: Profile, model: nn.Module, batches: Iterator[Tensor]) -> Json:
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with profile(model, optimizer) as prof:
        for batch in batches:
            optimizer.zero_grad()
            functional.mse_loss(model(batch), batch).backward()
            optimizer.step()
            prof.step(len(batch))
    return {}
