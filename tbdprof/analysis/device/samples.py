"""The samples of a counter in a window, and their mean over an interval."""

from dataclasses import dataclass

import numpy as np

from tbdprof.analysis.time.time_blocks import settled
from tbdprof.facts.arrays import Bools, Floats, Ints
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.windows import KERNELS, SAMPLED

SETTLING = (KERNELS, SAMPLED)  # windows whose first block is discarded as warm-up

Bounds = tuple[int, int]  # in nanoseconds


@dataclass(frozen=True, slots=True)
class Samples:
    """One entry per sample of the run's device, in the order of time."""

    start_ns: Ints  # -1 if the value belongs to the instant `time_ns`
    time_ns: Ints
    value: Floats

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.time_ns)

    def within(self, bounds: Bounds) -> Bools:
        """Return which samples were taken between two times."""
        return (self.time_ns >= bounds[0]) & (self.time_ns <= bounds[1])

    def weights(self, bounds: Bounds) -> Floats:
        """Return each sample's weight between two times: the nanoseconds of its interval, or 1 for an instant.

        If any sample covers an interval, instants weigh 0: they come from an instrument that replaced another.
        """
        if not (self.start_ns >= 0).any():
            return self.within(bounds).astype(np.float64)
        overlap = np.minimum(self.time_ns, bounds[1]) - np.maximum(self.start_ns, bounds[0])
        return np.where(self.start_ns >= 0, np.maximum(overlap, 0), 0).astype(np.float64)


def samples_of(recording: Recording, window: Window, counter: str) -> Samples:
    """Return the samples of a counter of the run's device in a window, in the order of time."""
    kept = recording.of_device(recording.samples(window, counter))
    kept = kept[np.argsort(kept["time_ns"], kind="stable")]
    return Samples(kept["start_ns"], kept["time_ns"], kept["value"])


def bounds_of(window: Window) -> Bounds | None:
    """Return when a window's counted steps began and ended, or None if there are none."""
    steps = window.table("step")
    steps = settled(steps) if window.name in SETTLING else steps
    return (int(steps["start_ns"].min()), int(steps["end_ns"].max())) if len(steps) else None


def gathered(recording: Recording, name: str, counter: str) -> tuple[Floats, Floats]:
    """Return a counter's values and weights in all windows of this name, without values of weight 0."""
    values, weights = [np.zeros(0)], [np.zeros(0)]
    for window in recording.named(name):
        bounds = bounds_of(window)
        if bounds is not None:
            found = samples_of(recording, window, counter)
            values.append(found.value)
            weights.append(found.weights(bounds))
    value, weight = np.concatenate(values), np.concatenate(weights)
    return value[weight > 0], weight[weight > 0]


def mean(recording: Recording, name: str, counter: str) -> float | None:
    """Return a counter's mean over the counted steps of all windows of this name, or None without a sample there."""
    values, weights = gathered(recording, name, counter)
    return float(np.average(values, weights=weights)) if len(values) else None
