"""The work of `--html`: the page of a recording, written beside it or where -o says."""

from pathlib import Path

from tbdprof.analysis.pictures import pictures
from tbdprof.cli.streams import tell
from tbdprof.errors import UsageError
from tbdprof.facts.file.placing import new
from tbdprof.report.page import recording, render
from tbdprof.results.summary import Summary

ENDING = ".html"


def check(path: Path, output: Path | None, *, as_json: bool = False, force: bool = False) -> Path:
    """Return where a page goes, by default beside the file it is of; raises UsageError where something is there.

    Raise UnavailableError where what makes pages is not installed: a run is not to end with that news.
    """
    if as_json:
        raise UsageError("--html writes a page and --json prints JSON: give one of them")
    render.refuse_without_libraries()
    target = output or path.with_suffix(ENDING)
    if target.exists() and not force:
        raise UsageError(f"{target} exists: choose another name with -o" if output else f"{target} exists: delete it")
    return target


def write(summary: Summary, target: Path) -> None:
    """Write the page of a recording into a new file, and name it on stderr."""
    page = recording.render(summary, pictures(summary.recording))
    target.unlink(missing_ok=True)  # it was there only with --force
    with new(target) as part:
        part.write_text(page, encoding="utf-8")
    tell(f"page in {target}")
