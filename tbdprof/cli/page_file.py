"""The file of a page: refused before any work where something is there, and named on stderr once it is written."""

from dataclasses import dataclass
from pathlib import Path

from tbdprof.cli.streams import tell
from tbdprof.errors import UsageError
from tbdprof.facts.file.placing import new
from tbdprof.report.page import render

WIDTH = 118  # of the terminal's report on a page


@dataclass(frozen=True, slots=True)
class PageFile:
    """Where a page goes, in place of an older one only if that was asked for."""

    target: Path
    force: bool = False

    def save(self, text: str) -> None:
        """Write a page, and name its file on stderr."""
        if self.force:
            self.target.unlink(missing_ok=True)
        with new(self.target) as part:
            part.write_text(text, encoding="utf-8")
        tell(f"page in {self.target}")


def planned(target: Path, *, force: bool = False, otherwise: str = "choose another name with -o") -> PageFile:
    """Return the file of a page; raises UsageError where something is there, and says what to do otherwise.

    Raise UnavailableError where what makes pages is not installed: a run is not to end with that news.
    """
    render.refuse_without_libraries()
    if target.exists() and not force:
        raise UsageError(f"{target} exists: {otherwise}")
    return PageFile(target, force)
