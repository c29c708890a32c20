"""Compare sides of one or several recordings, each with the first one."""

from collections.abc import Sequence
from pathlib import Path

from tbdprof.analysis.comparison import figures
from tbdprof.analysis.comparison.facts import Run, differences, not_alike, shared, sides_of, unsteady
from tbdprof.analysis.recordings import load
from tbdprof.analysis.summary import summarize
from tbdprof.errors import UsageError
from tbdprof.facts.recording import Recording
from tbdprof.results.compare import (
    BETWEEN,
    CANNOT_TELL,
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    Change,
    Comparison,
    Pair,
    Side,
)
from tbdprof.results.summary import Summary

Given = str | Path | Recording | Summary


def compare(baseline: Given | Sequence[Given], *others: Given | Sequence[Given], anyway: bool = False) -> Comparison:
    """Compare recordings, each with the first one; a list holds repeats of the same thing, which are pooled.

    A recording is a file, what `load` returned, or its summary. Raise UsageError if repeats are unlike or the models
    differ, unless `anyway`; raise RecordingFormatError for a file that cannot be read.
    """
    given = [[*each] if isinstance(each, list | tuple) else [each] for each in (baseline, *others)]
    if not all(given):
        raise UsageError("a side has no recording: give one or several")
    return compare_runs([[_run(each) for each in side] for side in given], anyway=anyway)  # type: ignore[arg-type]


def _run(given: Given) -> Run:
    if isinstance(given, str | Path):
        return Run(str(given), load(given).summary)
    if isinstance(given, Recording):
        given = summarize(given)
    if isinstance(given, Summary):
        return Run(given.recording.run.model, given)
    raise UsageError(
        f"{type(given).__name__} cannot be compared: give a file, a recording, a summary, or a list of them"
    )


def compare_runs(groups: Sequence[Sequence[Run]], *, anyway: bool = False) -> Comparison:
    """Compare groups of named summaries, each with the first one; `compare` says which errors it raises."""
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
    """Return which side is faster, or why one cannot tell; of repeats, drift in a run is part of their variation."""
    ends = throughput.interval
    if ends is None:
        return CANNOT_TELL, throughput.reason
    if ends[0] <= 1 <= ends[1]:
        return NO_DIFFERENCE, ""
    if unsteady_runs and throughput.basis != BETWEEN:
        return CANNOT_TELL, f"not steady while it was measured: {', '.join(unsteady_runs)}"
    return (FASTER if ends[0] > 1 else SLOWER), ""
