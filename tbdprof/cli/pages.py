"""The work of `--html`: the page of a recording, written beside it or where -o says."""

from dataclasses import dataclass
from pathlib import Path

from tbdprof.analysis.pictures import pictures
from tbdprof.cli import page_file
from tbdprof.cli.page_file import WIDTH, PageFile
from tbdprof.report import terminal
from tbdprof.report.json_report import document
from tbdprof.report.page import recording
from tbdprof.report.page.texts import readable
from tbdprof.results.summary import Summary

ENDING = ".html"


@dataclass(frozen=True, slots=True)
class Page:
    """The page of a recording that is to be made."""

    file: PageFile

    def write(self, summary: Summary) -> None:
        """Write the page."""
        found = pictures(summary.recording)
        shown = terminal.render(readable(summary), width=WIDTH)
        self.file.save(recording.render(summary, found, document=document(summary), terminal=shown))


def planned(path: Path, output: Path | None = None, *, force: bool = False) -> Page:
    """Return the page of a recording, by default beside its file; raises UsageError where something is there."""
    if output is not None:
        return Page(page_file.planned(output, force=force))
    return Page(page_file.planned(path.with_suffix(ENDING), force=force, otherwise="delete it"))
