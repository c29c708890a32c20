"""Where the checks run, and how large they are: a rehearsal on a CPU finds their own mistakes before a card does."""

import os

VARIABLE = "TBDPROF_REHEARSE"
REHEARSED = os.environ.get(VARIABLE) == "1"
DEVICE = "cpu" if REHEARSED else "cuda:0"
IMAGE = {"image_size": "32"} if REHEARSED else {}
WINDOW_S = 1.5 if REHEARSED else 15.5
STEADY_S = 12.0 if REHEARSED else 72.0
THREADS = 1 if REHEARSED else None
PATIENCE = 10 if REHEARSED else 1  # times a check's limit


def size(whole: int, rehearsed: int) -> int:
    """Return a number as it is on a card, or in a rehearsal."""
    return rehearsed if REHEARSED else whole


def precision(name: str) -> str:
    """Return a precision that the device has."""
    return "fp32" if REHEARSED and name == "tf32" else name


def synchronize() -> None:
    """Wait for what torch asked of the card."""
    if not REHEARSED:
        import torch

        torch.cuda.synchronize()
