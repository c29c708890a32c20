"""Recordings as the observations need them: which program, framework, device and batch, and its figures."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tbdprof import suite
from tbdprof.analysis.sweep.figures import figures
from tbdprof.results.summary import Summary
from tbdprof.results.sweep import End, PointFigures, Sweep, settings_text
from tbdprof.results.time import NORMAL_95, Rate

LSTM, RNN, OTHER = "LSTM", "RNN", "other"


@dataclass(frozen=True, slots=True)
class Case:
    """One recording."""

    program: str  # a model of the suite, or a script
    variant: str  # its framework and other settings
    framework: str
    batch: int
    figures: PointFigures | None  # None: it ran out of memory

    @property
    def kind(self) -> str:
        """Return what kind of layer dominates: LSTM, RNN, or other."""
        return _kind(self.program)

    @property
    def label(self) -> str:
        """Name the case."""
        return " ".join(filter(None, (self.program, self.variant)))


@cache
def _kind(program: str) -> str:
    if program not in suite.names():
        return OTHER
    layer = suite.find(program).dominant_layer
    return layer if layer in (LSTM, RNN) else OTHER


def of_sweep(sweep: Sweep) -> list[Case]:
    """Return the points of a sweep over batches that finished or ran out of memory."""
    if not sweep.batch:
        return []
    varied = [name for name in sweep.swept if name not in ("model", sweep.batch)]
    found = []
    for point in sweep.points:
        if point.end is not End.FAILED:
            variant = " ".join(settings_text({name: point.settings[name] for name in varied}))
            program = str(point.settings.get("model", sweep.title))
            framework = point.figures.framework.split()[0] if point.figures is not None else ""
            found.append(Case(program, variant, framework, int(point.settings[sweep.batch]), point.figures))
    return found


def of_recording(summary: Summary) -> list[Case]:
    """Return a recording as a case, if the samples of its steps are known."""
    run, batch = summary.recording.run, summary.batch_size
    if batch is None:
        return []
    return [Case(run.model, run.framework, run.framework, round(batch), figures(summary))]


def groups(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Return the cases that finished and differ in their batch only, ascending, by program, variant and device."""
    found: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: case.batch):
        if case.figures is not None:
            found.setdefault(f"{case.label} on {case.figures.device}", []).append(case)
    return found


def ladders(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Return the groups with at least two batches."""
    return {label: group for label, group in groups(cases).items() if len(group) > 1}


def largest(cases: Iterable[Case]) -> dict[str, Case]:
    """Return the case of each group with the largest batch."""
    return {label: group[-1] for label, group in groups(cases).items()}


def difference(one: Rate, other: Rate) -> int | None:
    """Return 1 if a throughput is significantly above another, -1 if below, 0 if neither; None: not known."""
    if one.error is None or other.error is None:
        return None
    lead = one.per_s - other.per_s
    return 0 if abs(lead) <= NORMAL_95 * math.hypot(one.error, other.error) else 1 if lead > 0 else -1


def rates(group: Sequence[Case]) -> Mapping[int, Rate]:
    """Return the throughputs of a group by batch."""
    found = {case.batch: None if case.figures is None else case.figures.rate for case in group}
    return {batch: rate for batch, rate in found.items() if rate is not None}
