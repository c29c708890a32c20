"""The name that the files of several ranks share, and that is no file's own."""

from pathlib import Path

from tbdprof.errors import UsageError
from tbdprof.facts.ranks import files_of


def sharing(name: Path) -> list[Path]:
    """Return the files of ranks that share a name which is no file's own."""
    found = [*files_of(name).values()]
    return [] if not found or name.exists() else found


def refuse(file: Path) -> None:
    """Raise UsageError if a name is not that of a file, but what the files of several ranks share."""
    if found := sharing(file):
        raise UsageError(f"{file} does not exist, but each rank has a file: give one, such as {found[0]}")
