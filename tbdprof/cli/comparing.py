"""The work of `tbdprof compare`, from the words on the command line."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tbdprof.analysis.comparison.facts import Run
from tbdprof.analysis.comparison.gate import judge
from tbdprof.analysis.comparison.limits import parse
from tbdprof.analysis.comparison.sides import compare_runs
from tbdprof.analysis.summary import summarize
from tbdprof.cli import several
from tbdprof.cli.streams import emit
from tbdprof.errors import RecordingFormatError, UsageError
from tbdprof.facts.file.reading import load
from tbdprof.report import compare as report
from tbdprof.report.json_report import document
from tbdprof.results.compare import BROKEN, CANNOT_TELL, Comparison
from tbdprof.results.summary import Summary

HOLDS, IS_BROKEN, UNDECIDED = 0, 1, 3  # exit codes; 2: it cannot be asked like this


def compare(words: Sequence[str], fail_if: Sequence[str], *, anyway: bool, color: bool, as_json: bool) -> int:
    """Print the comparison of the sides that are named, and return the exit code of the limits."""
    limits = [parse(text) for text in fail_if]
    groups = [[Run(str(path), _summary(path)) for path in files] for files in _sides(words)]
    comparison = compare_runs(groups, anyway=anyway)
    if limits:
        documents = [[document(run.summary) for run in group] for group in groups]
        comparison = judge(comparison, documents, limits, anyway=anyway)
    emit(report.render_json(comparison) if as_json else report.render(comparison, color=color))
    return _code(comparison)


def _sides(words: Sequence[str]) -> Iterator[list[Path]]:
    """Yield the files of each side: repeats are joined with commas, unless a file has the whole name."""
    for word in words:
        names = [word] if Path(word).exists() else word.split(",")
        if not all(names):
            raise UsageError(f"{word!r} names no file before or after a comma: join repeats as a1.tbd,a2.tbd,a3.tbd")
        yield [path for name in names for path in _files(Path(name))]


def _files(path: Path) -> list[Path]:
    """Return the recordings that a name stands for."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: give recordings, and join repeats with commas")
    several.refuse_common_name(path)
    return [path]


def _summary(path: Path) -> Summary:
    try:
        return summarize(load(path))
    except RecordingFormatError as error:  # exit code 1 means that a limit is broken
        raise UsageError(str(error)) from error


def _code(comparison: Comparison) -> int:
    outcomes = {each.outcome for each in comparison.judged}
    if BROKEN in outcomes:
        return IS_BROKEN
    return UNDECIDED if CANNOT_TELL in outcomes else HOLDS
