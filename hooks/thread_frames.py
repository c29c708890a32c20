"""What the frames of threads show: which ones wait, and which thread redraws progress bars."""

import inspect
import os
import threading
from pathlib import Path
from types import FrameType

_STANDARD_LIBRARY = str(Path(threading.__file__).parent) + os.sep
_LIGHTNINGS = "callbacks.progress.rich_progress"
_BARS = ("tqdm._monitor", f"lightning.pytorch.{_LIGHTNINGS}", f"pytorch_lightning.{_LIGHTNINGS}")  # modules
_PACKAGES = ("site-packages", "dist-packages")


def waits(frame: FrameType, within: tuple[str, ...] = ()) -> bool:
    """Return whether a thread is in Python's own library, and not called from files whose paths begin with `within`.

    It waits there and computes nothing with a framework.
    """
    file = frame.f_code.co_filename
    if not file.startswith((_STANDARD_LIBRARY, "<frozen")) or any(each in file for each in _PACKAGES):
        return False
    around: FrameType | None = frame
    while around is not None and not around.f_code.co_filename.startswith(within):
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
