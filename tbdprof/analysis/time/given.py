"""How many samples and other units a step has where the loop does not count them: what its models were seen to get."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tbdprof.analysis.time.consumption import totals
from tbdprof.facts.arrays import Floats
from tbdprof.facts.batches import FIRST_SIZE
from tbdprof.facts.consumed import StepCountKind
from tbdprof.facts.recording import Recording
from tbdprof.facts.windows import CLEAN, KERNELS, MEMORY, SAMPLED, WARMUP
from tbdprof.results.found import Found
from tbdprof.results.reasons import NO_SAMPLES

AS_GIVEN = "as given"


@dataclass(frozen=True, slots=True)
class Given:
    """How much a step has of each unit that the loop does not count, and where the samples are from."""

    per_step: Mapping[str, float]
    samples_from: str = ""
    misread: frozenset[str] = frozenset()  # units of which what was seen is not the number


def given(recording: Recording) -> Found[Given]:
    """Return how much each step has, where all have the same.

    What a loader or `fit` says of samples vouches for steps that were seen with fewer, as an epoch's last one, and it
    decides where the first size of the input is another one, as with inputs of shape (time, batch).
    """
    run, counted = recording.run, counted_units(recording)
    found, missing, samples_from, misread = dict[str, float](), dict[str, str](), "", frozenset[str]()
    if run.batch_size is not None and run.sample_unit not in counted:
        found[run.sample_unit], samples_from = float(run.batch_size), run.batch_size_from or AS_GIVEN
    for unit, counts in _seen(recording).items():
        most, declared = float(counts.max()), found.get(unit)
        if unit in counted:
            continue
        if declared and most % declared:
            misread |= {unit}
            continue
        if declared is None and (counts < most).any():
            seen = f"from {counts.min():,.0f} to {most:,.0f} {unit}"
            missing[unit] = f"the steps that were watched differ, {seen}: give prof.step() the number of each"
            continue
        found[unit] = most
        if unit == run.sample_unit:
            times = f", {most / declared:.0f} times a step" if declared and most > declared else ""
            samples_from = (samples_from or run.samples_seen_from or FIRST_SIZE) + times
    if run.samples_unknown and run.sample_unit not in found:
        missing.setdefault(run.sample_unit, run.samples_unknown)
    return Found(Given(found, samples_from, misread), missing)


def why_no_samples(recording: Recording, steps: Found[Given]) -> str:
    """Return why the samples of a step are not known; `steps` is what `given` found."""
    return steps.missing.get(recording.run.sample_unit, NO_SAMPLES)


def counted_units(recording: Recording) -> set[str]:
    """Return the units that the loop itself counts: in every window, clean ones too."""
    clean = [window for window in recording.windows if window.name in (WARMUP, CLEAN)]
    others = (totals(window, recording.strings, StepCountKind.UNITS) for window in clean)
    return {recording.run.unit}.union(*others)


def _seen(recording: Recording) -> dict[str, Floats]:
    """Return what the steps of the watched windows were given, by unit."""
    found: dict[str, list[Floats]] = {}
    for window in recording.windows:
        rows = window.table("step_count")
        if window.name in (MEMORY, KERNELS, SAMPLED):
            rows = rows[rows["kind"] == StepCountKind.UNITS]
            for name in np.unique(rows["name"]):
                found.setdefault(recording.strings[int(name)], []).append(rows["value"][rows["name"] == name])
    return {unit: np.concatenate(values) for unit, values in found.items()}
