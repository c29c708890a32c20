"""How a command reports that a signal ended it."""

from tbdprof.cli.streams import fail
from tbdprof.loop import ending


def say_interrupted(error: KeyboardInterrupt, kept: str) -> int:
    """Say that a run was interrupted, and return its exit code."""
    said = str(error) if isinstance(error, ending.Terminated) else "interrupted"
    return fail(f"{said}; {kept}", ending.OF_SIGNAL + ending.number(error))
