"""Compare sides of one or several recordings, each with the first one."""

from collections.abc import Sequence

from tbdprof.analysis.comparison import figures
from tbdprof.analysis.comparison.facts import Run, differences, not_alike, shared, sides_of, unsteady
from tbdprof.analysis.time.throughput import DRIFT
from tbdprof.results.compare import (
    CANNOT_TELL,
    FASTER,
    NO_DIFFERENCE,
    POOLED,
    SLOWER,
    Change,
    Comparison,
    Pair,
    Side,
)


def compare_runs(groups: Sequence[Sequence[Run]], *, anyway: bool = False) -> Comparison:
    """Compare groups of named summaries, each with the first one.

    Raise UsageError for fewer than two or too many groups and, unless `anyway`, for unlike repeats or different models.
    """
    sides = sides_of(groups, anyway=anyway)
    pairs = tuple(_pair(place, groups, sides) for place in range(1, len(groups)))
    return Comparison(sides, shared(sides), differences(sides), pairs)


def _pair(place: int, groups: Sequence[Sequence[Run]], sides: Sequence[Side]) -> Pair:
    baseline, other = ([run.summary for run in group] for group in (groups[0], groups[place]))
    throughput = figures.throughput(baseline, other)
    moving = (*unsteady(groups[0]), *unsteady(groups[place]))
    verdict, reason = _verdict(throughput, moving)
    kinds = {
        (each.recording.run.framework, each.recording.run.device.partition(":")[0]) for each in (*baseline, *other)
    }
    return Pair(
        side=place,
        verdict=verdict,
        reason=reason,
        throughput=throughput,
        figures=figures.figures(baseline, other),
        phases=figures.phases(baseline, other),
        categories=figures.categories(baseline, other),
        roles=figures.roles(baseline, other),
        kernels=figures.kernels(baseline, other),
        layers=figures.layers(baseline, other),
        operations=figures.operations(baseline, other),
        same_names=len(kinds) == 1,
        not_alike=not_alike(sides[0].facts, sides[place].facts),
        unsteady=moving,
    )


def _verdict(throughput: Change, unsteady_runs: Sequence[str]) -> tuple[str, str]:
    """Return which side is faster, or why one cannot tell.

    Of repeats, drift in a run is part of their variation. Of single recordings nobody knows how much more runs differ
    than the windows of one: they are told apart only by as much as windows of one run must differ to disagree.
    """
    ends, is_pooled = throughput.interval, throughput.basis in POOLED
    if ends is None:
        return CANNOT_TELL, throughput.reason
    is_small = abs(throughput.change) <= DRIFT * min(throughput.baseline or 0.0, throughput.other or 0.0)
    if ends[0] <= 1 <= ends[1] or (is_small and not is_pooled):
        return NO_DIFFERENCE, ""
    if unsteady_runs and not is_pooled:
        return CANNOT_TELL, f"not steady while it was measured: {', '.join(unsteady_runs)}"
    return (FASTER if ends[0] > 1 else SLOWER), ""
