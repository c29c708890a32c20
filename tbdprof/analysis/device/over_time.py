"""What was sampled of a device, over time: power, clocks, utilization."""

from collections.abc import Iterator

import numpy as np

from tbdprof.facts import counters
from tbdprof.facts.arrays import Floats, Ints
from tbdprof.facts.recording import Recording
from tbdprof.facts.rows import KINDS
from tbdprof.results.pictures import Series

DRAWN = (
    *(counters.POWER, counters.SM_CLOCK, counters.MEMORY_CLOCK, counters.TEMPERATURE, counters.DRIVER_BUSY),
    *(counters.GPM_BUSY, counters.GPM_SM_ACTIVE, counters.GPM_OCCUPANCY, counters.GPM_FP32, counters.GPM_TENSOR),
    *(counters.GPM_DRAM, counters.PM_BUSY, counters.PM_FP32, counters.PM_TENSOR, counters.PM_DRAM),
)
STRETCHES = 500


def over_time(recording: Recording) -> Iterator[Series]:
    """Yield the samples of each counter and device; of many, the least and the most of each of equal parts."""
    tables = [window.table("sample") for window in recording.windows]
    rows = np.concatenate(tables) if tables else np.zeros(0, KINDS["sample"])
    for counter in DRAWN if len(rows) else ():
        named = rows[rows["counter"] == recording.strings.find(counter)]
        for device in np.unique(named["device"]).tolist():
            mine = named[(named["device"] == device) & np.isfinite(named["value"])]
            mine = np.sort(mine, order="time_ns")
            kept = _kept(mine["value"])
            yield Series(counter, recording.strings[device], len(mine), mine["time_ns"][kept], mine["value"][kept])


def _kept(values: Floats) -> Ints:
    if len(values) <= 2 * STRETCHES:
        return np.arange(len(values))
    stretches = np.array_split(np.arange(len(values)), STRETCHES)
    chosen = [part[pick(values[part])] for part in stretches for pick in (np.argmin, np.argmax)]
    return np.unique(np.array(chosen, np.int64))
