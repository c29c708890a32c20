"""What the frames of threads show: which ones wait, and which thread redraws progress bars."""

import inspect
import os
import threading
from pathlib import Path
from types import FrameType

import torch

_STANDARD_LIBRARY = str(Path(threading.__file__).parent) + os.sep
_LIGHTNINGS = "callbacks.progress.rich_progress"
_BARS = ("tqdm._monitor", f"lightning.pytorch.{_LIGHTNINGS}", f"pytorch_lightning.{_LIGHTNINGS}")  # modules
_PACKAGES = ("site-packages", "dist-packages")
_TORCH = str(Path(torch.__file__).parent) + os.sep
_RECORDED = tuple(_TORCH + each + os.sep for each in ("autograd", "optim", f"utils{os.sep}data"))


def waits(frame: FrameType) -> bool:
    """Return whether a thread is in Python's own library: it waits there and computes nothing with torch.

    It may wait there inside what torch records: a backward pass, an optimizer's step, or the fetch of a batch. The end
    of that would write into the session's memory.
    """
    file = frame.f_code.co_filename
    if not file.startswith((_STANDARD_LIBRARY, "<frozen")) or any(each in file for each in _PACKAGES):
        return False
    around: FrameType | None = frame
    while around is not None and not around.f_code.co_filename.startswith(_RECORDED):
        around = around.f_back
    return around is None


def watches_bars() -> bool:
    """Return whether this is the thread that redraws the progress bars of tqdm or Lightning: it never calls torch.

    It would stay a member for the rest of the program, with a hook on all modules, because it nearly always sleeps.
    Lightning's sleeps in code of its own, so that a window's end would take it for a thread that computes.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") not in _BARS:
        frame = frame.f_back
    return frame is not None
