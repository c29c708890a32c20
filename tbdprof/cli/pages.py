"""The work of `--html`: the page of a recording, written beside it or where -o says."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tbdprof.analysis.pictures import pictures
from tbdprof.analysis.summary import summarize
from tbdprof.cli import page_file
from tbdprof.cli.opening import opened
from tbdprof.cli.page_file import WIDTH, PageFile
from tbdprof.errors import UsageError
from tbdprof.report import terminal
from tbdprof.report.json_report import document
from tbdprof.report.page.texts import readable
from tbdprof.results.summary import Summary
from tbdprof.sweep import is_folder

ENDING = ".html"


@dataclass(frozen=True, slots=True)
class Page:
    """The page of a recording that is to be made."""

    file: PageFile

    def write(self, summary: Summary) -> None:
        """Write the page."""
        from tbdprof.report.page import recording  # its libraries are optional

        found = pictures(summary.recording)
        shown = terminal.render(readable(summary), width=WIDTH)
        self.file.save(recording.render(summary, found, document=document(summary), terminal=shown))


def planned(path: Path, output: Path | None = None, *, force: bool = False) -> Page:
    """Return the page of a recording, by default beside its file; raises UsageError where something is there."""
    if output is not None:
        return Page(page_file.planned(output, force=force))
    return Page(page_file.planned(path.with_suffix(ENDING), force=force, otherwise="delete it"))


def write(files: Sequence[Path], output: Path | None, *, salvage: bool) -> None:
    """Write the page of a recording; raise UsageError for several, and for a sweep."""
    if is_folder(files[0]):
        raise UsageError(f"{files[0]} is a sweep: for its page, type tbdprof figures {files[0]} --html -o PAGE")
    if len(files) > 1:
        raise UsageError("--html makes the page of one recording: give one file")
    page = planned(files[0], output)
    page.write(summarize(opened(files[0], salvage=salvage)))
