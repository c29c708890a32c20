"""The work of `--html`: the page of a recording, written beside it or where -o says."""

from dataclasses import dataclass
from pathlib import Path

from tbdprof.analysis.pictures import pictures
from tbdprof.cli.streams import tell
from tbdprof.errors import UsageError
from tbdprof.facts.file.placing import new
from tbdprof.report import terminal
from tbdprof.report.json_report import document
from tbdprof.report.page import recording, render
from tbdprof.report.page.texts import readable
from tbdprof.results.summary import Summary

ENDING = ".html"
WIDTH = 118  # of the terminal's report on the page


@dataclass(frozen=True, slots=True)
class Page:
    """A page to be made, in place of an older one only if that was asked for."""

    target: Path
    force: bool = False

    def write(self, summary: Summary) -> None:
        """Write the page of a recording, and name it on stderr."""
        found = pictures(summary.recording)
        shown = terminal.render(readable(summary), width=WIDTH)
        text = recording.render(summary, found, document=document(summary), terminal=shown)
        if self.force:
            self.target.unlink(missing_ok=True)
        with new(self.target) as part:
            part.write_text(text, encoding="utf-8")
        tell(f"page in {self.target}")


def planned(path: Path, output: Path | None = None, *, force: bool = False) -> Page:
    """Return the page of a recording, by default beside its file; raises UsageError where something is there.

    Raise UnavailableError where what makes pages is not installed: a run is not to end with that news.
    """
    render.refuse_without_libraries()
    target = output or path.with_suffix(ENDING)
    if target.exists() and not force:
        raise UsageError(f"{target} exists: choose another name with -o" if output else f"{target} exists: delete it")
    return Page(target, force)
