"""Judge limits on figures: is one broken, does it hold, or can one not tell."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from tbdprof.analysis.comparison.figures import between
from tbdprof.analysis.comparison.limits import bound
from tbdprof.analysis.comparison.names import (
    PEAK_MEMORY,
    SAME_AS,
    SHORT,
    STEP_TIME,
    THROUGHPUT,
    WITH_WAITS,
    is_exact,
    unit_of,
)
from tbdprof.analysis.comparison.statistics import Estimate, exact
from tbdprof.errors import UsageError
from tbdprof.results.compare import (
    BROKEN,
    CANNOT_TELL,
    FINE,
    POOLED,
    Change,
    Comparison,
    Figures,
    Judged,
    Limit,
    Pair,
    figures_of,
)

PEAKS = ("memory.independent_peak_bytes", "memory.allocator_peak_bytes")  # the first that is known
CLOSE = 0.5
Documents = Sequence[Sequence[Mapping[str, Any]]]  # the JSON reports of each side's recordings


def judge(comparison: Comparison, documents: Documents, limits: Sequence[Limit], *, anyway: bool = False) -> Comparison:
    """Return the comparison with the limits judged, side by side; raise UsageError for a figure that does not exist.

    Unless `anyway`, one cannot tell between sides on other devices or of other batches.
    """
    figures = [[_with_peak(figures_of(each)) for each in side] for side in documents]
    known = {name for side in figures for each in side for name in each} | {*SHORT}
    bounds = [(limit, path := _path(limit, known), bound(limit, path)) for limit in limits]
    judged = []
    for pair in comparison.pairs:
        for limit, path, number in bounds:
            change = _change(pair, path, figures[0], figures[pair.side], documents)
            judged.append(_judged(pair, limit, number, change, anyway=anyway))
    return replace(comparison, judged=tuple(judged))


def _with_peak(figures: Figures) -> Figures:
    return {**figures, PEAK_MEMORY: next((figures[name] for name in PEAKS if figures.get(name) is not None), None)}


def _path(limit: Limit, known: set[str]) -> str:
    """Return the path of a limit's figure; raise UsageError, which names the nearest ones, if there is none."""
    path = SAME_AS.get(limit.figure, SHORT.get(limit.figure) or limit.figure)
    if limit.figure in SHORT or any(
        each in known for each in (path, *_around(path))
    ):  # a part that is null has no more
        return path
    short = get_close_matches(limit.figure, SHORT, n=2, cutoff=CLOSE)
    near = dict.fromkeys([*short, *_ending_alike(limit.figure, known), *get_close_matches(limit.figure, known, n=3)])
    meant = f"did you mean {' or '.join([*near][:4])}? " if near else ""
    raise UsageError(f"--fail-if {limit.text!r}: no figure {limit.figure!r}: {meant}docs/compare.md lists short names")


def _around(path: str) -> list[str]:
    """Return the paths of the parts around a figure, the innermost first."""
    ends = [at for at, each in enumerate(path) if each in ".["]
    return [path[:at] for at in reversed(ends)]


def _ending_alike(figure: str, known: set[str]) -> list[str]:
    last = figure.rpartition(".")[2]
    return sorted((name for name in known if name.rpartition(".")[2] == last), key=len)[:2]


def _change(
    pair: Pair, path: str, baseline: Sequence[Figures], other: Sequence[Figures], documents: Documents
) -> Change:
    if path == THROUGHPUT:
        return pair.throughput
    for each in pair.figures:
        if path == each.path and path in (STEP_TIME, WITH_WAITS):
            return each
    values = [[each.get(path) for each in side] for side in (baseline, other)]
    estimates = [
        [exact(value) if is_exact(path) else Estimate(value) for value in side if value is not None] for side in values
    ]
    is_whole = not any(value is None for side in values for value in side)
    reason = "" if is_whole else _why_missing(path, [documents[0], documents[pair.side]])
    return between(path, path, unit_of(path), *estimates, is_whole=is_whole, reason=reason)


def _why_missing(path: str, documents: Documents) -> str:
    """Return the reason that a report has for a missing figure, under its path or that of a part around it."""
    inside = PEAKS[1] if path == PEAK_MEMORY else path
    paths = [inside, *_around(inside)]
    every = [each.get("missing") or {} for side in documents for each in side]
    return next((str(each[name]) for name in paths for each in every if name in each), "not measured in all recordings")


def _judged(pair: Pair, limit: Limit, number: float, change: Change, *, anyway: bool) -> Judged:
    ends = _ends(limit, change)
    if limit.is_change and pair.not_alike and not anyway:
        return _cannot(limit, pair, change, f"not comparable: {', '.join(pair.not_alike)} (--anyway compares them)")
    if ends is None:
        return _cannot(limit, pair, change, change.reason or "the baseline is 0")
    unsteady = pair.unsteady if not is_exact(change.path) and change.basis not in POOLED else ()
    if unsteady:
        return _cannot(limit, pair, change, f"not steady while it was measured: {', '.join(unsteady)}")
    beyond = [_is_beyond(limit.operator, end, number) for end in ends]
    if all(beyond):
        return Judged(limit, pair.side, BROKEN, change)
    if any(beyond):
        return _cannot(limit, pair, change, "the interval lies across the limit: measure longer, or give more repeats")
    return Judged(limit, pair.side, FINE, change)


def _cannot(limit: Limit, pair: Pair, change: Change, reason: str) -> Judged:
    return Judged(limit, pair.side, CANNOT_TELL, change, reason)


def _ends(limit: Limit, change: Change) -> tuple[float, float] | None:
    """Return the interval that a limit is held against: of the value, its change, or its change in proportion."""
    if not limit.is_change:
        return change.value_interval
    if limit.unit != "%":
        return change.change_interval
    if change.interval is not None:
        return change.interval[0] - 1, change.interval[1] - 1
    ends, baseline = change.change_interval, change.baseline
    if ends is None or baseline is None:
        return None
    if not baseline:
        return (0.0, 0.0) if not any(ends) else None
    return ends[0] / baseline, ends[1] / baseline


def _is_beyond(operator: str, value: float, number: float) -> bool:
    if operator == "<":
        return value < number
    if operator == "<=":
        return value <= number
    return value > number if operator == ">" else value >= number
