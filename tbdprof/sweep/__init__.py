"""Sweeps: one program at many settings, each in a fresh process, all in one folder."""

import os
from pathlib import Path

PLAN = "sweep.json"  # in the folder of a sweep


def is_folder(path: Path) -> bool:
    """Return whether a path is the folder of a sweep; a name that no file can have is none."""
    return os.path.isfile(path / PLAN)  # noqa: PTH113 - a Path raises OSError for a name that is too long
