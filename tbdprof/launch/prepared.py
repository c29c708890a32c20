"""A framework, prepared for a run: its hook, while a block lasts."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tbdprof.errors import DeviceMemoryError
from tbdprof.hooks import FrameworkHook, Setting, load

SMALLER = "try a smaller --batch-size"


@contextmanager
def prepared(framework: str, setting: Setting, path: Path | None = None) -> Iterator[FrameworkHook]:
    """Prepare a framework until the block ends; yield its hook.

    Raises DeviceMemoryError where the block runs out of memory, which tells of the recording at `path`.
    """
    hook = load(framework)
    hook.prepare(setting)
    try:
        yield hook
    except Exception as error:  # each framework has classes of its own
        asked = hook.out_of_memory(error)
        if asked is None:
            raise
        failure = DeviceMemoryError(f"out of memory ({asked}){kept_in(path)}: {SMALLER}")
        traceback.clear_frames(error.__traceback__)  # which hold the model
        failure.keeps = hook.give_back_memory()
        raise failure from error
    finally:
        hook.close()


def kept_in(path: Path | None) -> str:
    """Say where what was recorded is; nothing where no file is."""
    return f"; what was recorded is in {path}" if path is not None and path.exists() else ""
