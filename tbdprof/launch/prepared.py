"""A framework prepared for a run, during a `with` block."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from tbdprof.errors import DeviceMemoryError
from tbdprof.facts.file.placing import Claim
from tbdprof.hooks import FrameworkHook, Setting, load

SMALLER = "try a smaller --batch-size"


@contextmanager
def prepared(framework: str, setting: Setting, claimed: Claim | None = None) -> Iterator[FrameworkHook]:
    """Prepare a framework until the block ends; yield its hook.

    Raise DeviceMemoryError if the block runs out of memory; its message names the recording that was kept.
    """
    hook = load(framework)
    hook.prepare(setting)
    try:
        yield hook
    except Exception as error:  # each framework has its own exception classes
        asked = hook.out_of_memory(error)
        if asked is None:
            raise
        failure = DeviceMemoryError(f"out of memory ({asked}){kept_in(claimed)}: {SMALLER}")
        traceback.clear_frames(error.__traceback__)  # the frames hold the model
        failure.keeps = hook.give_back_memory()
        raise failure from error
    finally:
        hook.close()


def kept_in(claimed: Claim | None) -> str:
    """Return where the new recording is, as the end of a message; empty if none was kept."""
    return f"; what was recorded is in {claimed.path}" if claimed is not None and claimed.is_kept else ""
