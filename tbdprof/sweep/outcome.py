"""How a point of a sweep ended, as it is kept in the point's own file."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from tbdprof.results.sweep import End

MEMORY_FULL = "the system ended a process because its memory was full"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a point; what is not known is None."""

    end: End
    reason: str | None = None  # why it did not finish
    seconds: float | None = None  # from the start of its process to its end
    machine: str | None = None  # where it ran
    took_bytes: int | None = None  # the most memory that its process used, beyond that at its start
    room_bytes: int | None = None  # the memory that was available when it began
    losses: tuple[float, ...] = ()  # before the first training step and after each, where the plan asks for them
    no_losses: str | None = None  # why there are none

    @property
    def is_result(self) -> bool:
        """Return whether the point need not be run again."""
        return self.end is not End.FAILED


def write(outcome: Outcome, path: Path) -> None:
    """Write an outcome into a file, which is whole or not there."""
    write_whole(path, json.dumps(asdict(outcome), indent=2) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file that a reader, or a crash, finds whole or as it was."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def read(path: Path) -> Outcome | None:
    """Return the outcome in a file, or None if there is none that can be read: its point then has not ended."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Outcome)
    except (OSError, msgspec.DecodeError):
        return None
