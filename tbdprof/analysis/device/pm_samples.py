"""The samples of hardware counters taken beside a kernels window, as columns."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tbdprof.analysis.device.attribution import Intervals
from tbdprof.analysis.time.time_blocks import settled
from tbdprof.facts.arrays import Floats
from tbdprof.facts.recording import Recording
from tbdprof.facts.rows import Table, table
from tbdprof.facts.windows import SAMPLED

_PREFIX = "pm_"  # begins the names of these counters


@dataclass(frozen=True, slots=True)
class PmSamples:
    """One entry per sample, in the order of time; samples do not overlap."""

    times: Intervals
    columns: Mapping[str, Floats]  # by counter; nan if not reported


def pm_samples(recording: Recording) -> PmSamples | None:
    """Return the samples that lie within the counted steps of the sampled windows, or None if there are none."""
    counters = {name: recording.strings.find(name) for name in recording.strings.since(0) if name.startswith(_PREFIX)}
    pieces = [table("sample", [])]
    for window in recording.named(SAMPLED):
        steps, rows = settled(window.table("step")), recording.of_device(window.table("sample"))
        if len(steps):
            inside = (rows["start_ns"] >= steps["start_ns"][0]) & (rows["time_ns"] <= steps["end_ns"][-1])
            mine = inside & (rows["start_ns"] < rows["time_ns"])
            pieces.append(rows[mine & np.isin(rows["counter"], list(counters.values()))])
    return _columns(np.concatenate(pieces), counters)


def reported(recording: Recording, counter: str) -> list[float]:
    """Return the values that the sampler reports about itself in each sampled window."""
    return [
        float(row["value"])
        for window in recording.named(SAMPLED)
        for row in recording.samples(window, counter)
        if row["start_ns"] < 0
    ]


def _columns(rows: Table, counters: Mapping[str, int]) -> PmSamples | None:
    start, first, place = np.unique(rows["start_ns"], return_index=True, return_inverse=True)
    columns = {}
    for name, index in counters.items():
        mine = rows["counter"] == index
        if mine.any():
            columns[name] = np.full(len(start), np.nan)
            columns[name][place[mine]] = rows["value"][mine]
    return PmSamples(Intervals(start, rows["time_ns"][first]), columns) if columns else None
