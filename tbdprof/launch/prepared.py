"""A framework prepared for a run, during a `with` block."""

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

    Raise DeviceMemoryError if the block runs out of memory; its message names the recording at `path`.
    """
    hook = load(framework)
    hook.prepare(setting)
    try:
        yield hook
    except Exception as error:  # each framework has its own exception classes
        asked = hook.out_of_memory(error)
        if asked is None:
            raise
        failure = DeviceMemoryError(f"out of memory ({asked}){kept_in(path)}: {SMALLER}")
        traceback.clear_frames(error.__traceback__)  # the frames hold the model
        failure.keeps = hook.give_back_memory()
        raise failure from error
    finally:
        hook.close()


def kept_in(path: Path | None) -> str:
    """Return where the recording is, as the end of a message; empty if there is no file."""
    return f"; what was recorded is in {path}" if path is not None and path.exists() else ""
