"""The work of `tbdprof compare`, from the words on the command line."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tbdprof.analysis.comparison.facts import Run
from tbdprof.analysis.comparison.gate import judge
from tbdprof.analysis.comparison.limits import parse
from tbdprof.analysis.comparison.sides import compare_runs
from tbdprof.analysis.summary import summarize
from tbdprof.cli import page_file
from tbdprof.cli.opening import refuse_common_name
from tbdprof.cli.streams import emit
from tbdprof.errors import RecordingFormatError, UsageError
from tbdprof.facts.file.reading import load
from tbdprof.report import compare as report
from tbdprof.report import compare_sweeps as sweeps
from tbdprof.report.json_report import document
from tbdprof.report.page.texts import readable
from tbdprof.results.compare import BROKEN, CANNOT_TELL, Comparison, Limit, PointComparison, SweepComparison
from tbdprof.results.summary import Summary
from tbdprof.sweep.folder import load as load_sweep
from tbdprof.sweep.running import recordings

HOLDS, IS_BROKEN, UNDECIDED = 0, 1, 3  # exit codes; 2: it cannot be asked like this


def compare(
    words: Sequence[str],
    fail_if: Sequence[str],
    *,
    anyway: bool,
    color: bool,
    as_json: bool,
    output: Path | None = None,
) -> int:
    """Print the comparison of the sides that are named, and return the exit code of the limits.

    With `output`, a page is written there instead.
    """
    page = None if output is None else page_file.planned(output)
    limits = [parse(text) for text in fail_if]
    if any(map(os.path.isdir, words)):
        if page is not None:
            raise UsageError("--html makes the page of recordings: compare sweeps without it")
        found = _of_sweeps([Path(word) for word in words], limits, anyway=anyway)
        emit(sweeps.render_json(found) if as_json else sweeps.render(found, color=color))
        return _code(each.comparison for each in found.points)
    groups = [[Run(str(path), _summary(path)) for path in files] for files in _sides(words)]
    comparison = _judged(groups, limits, anyway)
    if page is not None:
        from tbdprof.report.page import comparison as pages  # its libraries are optional

        shown = report.render(readable(comparison), width=page_file.WIDTH)
        page.save(pages.render(comparison, document=report.document(comparison), terminal=shown))
    else:
        emit(report.render_json(comparison) if as_json else report.render(comparison, color=color))
    return _code([comparison])


def _judged(groups: Sequence[Sequence[Run]], limits: Sequence[Limit], anyway: bool) -> Comparison:
    comparison = compare_runs(groups, anyway=anyway)
    if not limits:
        return comparison
    documents = [[document(run.summary) for run in group] for group in groups]
    return judge(comparison, documents, limits, anyway=anyway)


def _of_sweeps(paths: Sequence[Path], limits: Sequence[Limit], *, anyway: bool) -> SweepComparison:
    """Compare sweeps, point by point: those that all of them have a recording of."""
    if not all(map(os.path.isdir, paths)):
        raise UsageError("some of these are folders of sweeps and others are not: give either")
    if len(paths) < 2:
        raise UsageError(f"{paths[0]} alone: give two sweeps or more")
    found = [recordings(load_sweep(path)) for path in paths]
    names = list(dict.fromkeys(name for each in found for name in each))
    shared = [name for name in names if all(name in each for each in found)]
    if not shared:
        raise UsageError(f"{' and '.join(map(str, paths))} have no point in common: sweep the same settings in each")
    points = []
    for name in shared:
        groups = [[Run(str(each[name]), _summary(each[name]))] for each in found]
        points.append(PointComparison(name, _judged(groups, limits, anyway)))
    left_out = tuple(name for name in names if name not in shared)
    return SweepComparison(tuple(map(str, paths)), tuple(points), left_out)


def _sides(words: Sequence[str]) -> Iterator[list[Path]]:
    """Yield the files of each side: repeats are joined with commas, unless a file has the whole name."""
    for word in words:
        names = [word] if os.path.exists(word) else word.split(",")  # noqa: PTH110
        if not all(names):
            raise UsageError(f"{word!r} names no file before or after a comma: join repeats as a1.tbd,a2.tbd,a3.tbd")
        yield [path for name in names for path in _files(Path(name))]


def _files(path: Path) -> list[Path]:
    """Return the recordings that a name stands for."""
    if os.path.isdir(path):  # noqa: PTH112 - a Path raises OSError for a name that is too long
        raise UsageError(f"{path} is a folder, and has no repeats: give folders of sweeps, or recordings")
    refuse_common_name(path)
    return [path]


def _summary(path: Path) -> Summary:
    try:
        return summarize(load(path))
    except RecordingFormatError as error:  # exit code 1 means that a limit is broken
        raise UsageError(str(error)) from error


def _code(comparisons: Iterable[Comparison]) -> int:
    outcomes = {each.outcome for comparison in comparisons for each in comparison.judged}
    if BROKEN in outcomes:
        return IS_BROKEN
    return UNDECIDED if CANNOT_TELL in outcomes else HOLDS
