"""The time per step over the whole run, block by block, and which blocks took much longer than their like."""

import numpy as np

from tbdprof.analysis.time.time_blocks import of_steps
from tbdprof.facts.arrays import Bools, Floats
from tbdprof.facts.recording import Recording
from tbdprof.results.found import Found, because
from tbdprof.results.pictures import Band, StepTimes

LEAST_BLOCKS = 5  # of one kind of window; of fewer, none is called an outlier
FAR = 3.5  # standard deviations, estimated from the median absolute deviation
NOTABLE = 1.05  # times the median: what is less far is no outlier, however little the others vary
_OF_DEVIATION = 1.4826  # a normal distribution's standard deviation over its median absolute deviation


def course(recording: Recording) -> Found[StepTimes | None]:
    """Return the time per step of each block of all windows, or why there is none."""
    found: list[tuple[int, str, int, int, float]] = []
    for window in recording.windows:
        steps = np.sort(window.table("step"), order="start_ns")
        for block in np.unique(steps["block"]):
            inside = steps[steps["block"] == block]
            each = float(of_steps([inside]).step_seconds[0])
            found.append((window.ordinal, window.name, int(inside["index"].min()), len(inside), each))
    if not found:
        return because("no step was recorded")
    ordinals, names, first, steps_of, seconds_of = zip(*found, strict=True)
    seconds = np.array(seconds_of)
    return Found(
        StepTimes(np.array(ordinals), names, np.array(first), np.array(steps_of), seconds, _outliers(names, seconds))
    )


def windows(recording: Recording) -> tuple[Band, ...]:
    """Return when each window with steps began and ended."""
    found = []
    for window in recording.windows:
        steps = window.table("step")
        if len(steps):
            name = f"{window.name} (window {window.ordinal})"
            found.append(Band(name, int(steps["start_ns"].min()), int(steps["end_ns"].max())))
    return tuple(found)


def _outliers(names: tuple[str, ...], seconds: Floats) -> Bools:
    """Return which blocks took much longer than the median of all windows of their name; none of the warm-up."""
    found = np.zeros(len(seconds), bool)
    kinds = np.array(names)
    for name in set(names) - {"warmup"}:
        mine = kinds == name
        values = seconds[mine]
        spread = _OF_DEVIATION * float(np.median(np.abs(values - np.median(values))))
        if len(values) >= LEAST_BLOCKS and spread:
            found[mine] = values > max(np.median(values) + FAR * spread, NOTABLE * np.median(values))
    return found
