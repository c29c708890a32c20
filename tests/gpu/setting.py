"""Where the checks run, and how large they are: a rehearsal finds their own mistakes before a card does.

It is one on a CPU (TBDPROF_REHEARSE=1), or on a device that is simulated (TBDPROF_REHEARSE=cuda, `stand_in/`).
"""

import os

VARIABLE = "TBDPROF_REHEARSE"
ON_CPU = os.environ.get(VARIABLE) == "1"
REHEARSED = ON_CPU or os.environ.get(VARIABLE) == "cuda"
DEVICE = "cpu" if ON_CPU else "cuda:0"
IMAGE = {"image_size": "32"} if REHEARSED else {}
WINDOW_S = 1.5 if REHEARSED else 15.5
STEADY_S = 12.0 if REHEARSED else 72.0
THREADS = 1 if REHEARSED else None
LARGE_BATCH = 4096 if not REHEARSED else 2 if ON_CPU else 16  # cannot fit; in a rehearsal 1000 MiB are too little
LARGE_IMAGE = IMAGE if ON_CPU else {}  # with small ones few bytes depend on the batch
PATIENCE = 10 if REHEARSED else 1  # times a check's limit


def size(whole: int, rehearsed: int) -> int:
    """Return a number as it is on a card, or in a rehearsal."""
    return rehearsed if REHEARSED else whole


def precision(name: str) -> str:
    """Return a precision that the device has."""
    return "fp32" if ON_CPU and name == "tf32" else name


def synchronize() -> None:
    """Wait for what torch asked of the card."""
    if not ON_CPU:
        import torch

        torch.cuda.synchronize()
