"""Small nets in torch that more than one test trains."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Checkpointed(nn.Module):
    """Images of 3 × 8 × 8 to 4 scores; what lies in the middle is run again in the backward pass."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Conv2d(3, 8, 3)
        self.inner = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU())
        self.last = nn.Linear(128, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(self.inner, self.first(images), use_reentrant=self.reentrant)
        scores: torch.Tensor = self.last(hidden.flatten(1))
        return scores
