"""Open the recording that a command names, and say on stderr which of its windows are damaged."""

from pathlib import Path
from typing import TYPE_CHECKING

from tbdprof.cli.streams import tell
from tbdprof.errors import UsageError
from tbdprof.facts.file.reading import load
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.ranks import files_of

if TYPE_CHECKING:
    from tbdprof.facts.recording import Recording


def opened(file: Path, *, salvage: bool = False) -> "Recording":
    """Return a recording; with `salvage`, without the windows that are damaged."""
    refuse_common_name(file)
    recording = load(file, salvage=salvage)
    if RemarkOn.DAMAGE in recording.missing:
        tell(f"{file}: {recording.missing[RemarkOn.DAMAGE]}")
    return recording


def sharing(name: Path) -> list[Path]:
    """Return the files of ranks that share a name which is no file's own."""
    found = [*files_of(name).values()]
    return [] if not found or name.exists() else found


def refuse_common_name(file: Path) -> None:
    """Raise UsageError if a name is not that of a file, but what the files of several ranks share."""
    if found := sharing(file):
        raise UsageError(f"{file} does not exist, but each rank has a file: give one, such as {found[0]}")
