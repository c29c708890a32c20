"""What must hold in every memory window; whatever does not is a violation, said in one line each.

1. After every event the known blocks do not exceed the framework's own running total (what they fall short of it is
   the unknown category, never hidden).
2. Each owned tensor is as large as its shape and item size say; optimizer state is what the optimizer's definition is.
3. The peak is not above the framework's own peak over the whole run.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tbdprof.analysis.blocks import Ints
from tbdprof.recording import Recording, Window
from tbdprof.records import Optimizer, Parameter, Role

# State arrays a parameter that each optimizer keeps, by its definition; others are not checked.
STATE_ARRAYS = {"adam": 2, "adamw": 2, "rmsprop": 1, "sgd": 0}


@dataclass(frozen=True, slots=True)
class Findings:
    """The violations found, each in one line, and how many single events or tensors they stand for."""

    lines: tuple[str, ...]
    count: int


def check(recording: Recording, window: Window, unknown_bytes: Ints, peak_bytes: int) -> Findings:
    """Return what does not hold in a memory window."""
    negative = unknown_bytes[unknown_bytes < 0]
    lines = []
    if len(negative):
        lines.append(
            f"after {len(negative)} events the blocks exceed the framework's total, by up to {-negative.min()} bytes"
        )
    tensors = [*_tensor_sizes(recording, window), *_optimizer_states(recording, window)]
    whole = recording.run.whole_run_peak_bytes
    peaks = []
    if whole is not None and peak_bytes > whole:
        peaks.append(f"the peak, {peak_bytes} bytes, is above the framework's own, {whole} bytes")
    return Findings((*lines, *tensors, *peaks), len(negative) + len(tensors) + len(peaks))


def _tensor_sizes(recording: Recording, window: Window) -> Iterator[str]:
    expected = {item.name: _bytes(item) for item in recording.run.parameters}
    seen = set()
    for row in window.table("owner"):
        if row["role"] not in (Role.WEIGHT, Role.BUFFER, Role.GRADIENT):
            continue
        name, size = recording.strings[row["name"]], int(row["bytes"])
        if name in expected and size != expected[name] and (name, row["role"]) not in seen:
            seen.add((name, row["role"]))
            yield f"{Role(row['role']).name.lower()} {name} holds {size} bytes, its shape says {expected[name]}"


def _bytes(parameter: Parameter) -> int:
    count = parameter.item_bytes
    for length in parameter.shape:
        count *= length
    return count


def _optimizer_states(recording: Recording, window: Window) -> Iterator[str]:
    held = _state_bytes(recording, window)
    parameters = {item.name: item for item in recording.run.parameters}
    for optimizer in recording.run.optimizers:
        arrays = state_arrays(optimizer)
        if arrays is None:
            continue
        for name in optimizer.parameters:
            if name not in held or name not in parameters:
                continue  # no state yet, as before a parameter's first gradient
            expected = int(arrays * _bytes(parameters[name]) + optimizer.settings.get("scalar_bytes", 0))
            if held[name] != expected:
                yield f"optimizer state of {name} holds {held[name]} bytes, {optimizer.kind} says {expected}"


def state_arrays(optimizer: Optimizer) -> int | None:
    """Return how many arrays of a parameter's size an optimizer keeps for it, None for one not in the table."""
    if optimizer.kind not in STATE_ARRAYS:
        return None
    extra = sum(bool(optimizer.settings.get(setting, 0)) for setting in ("momentum", "amsgrad", "centered"))
    return STATE_ARRAYS[optimizer.kind] + extra


def _state_bytes(recording: Recording, window: Window) -> Mapping[str, int]:
    """Return the bytes of state of each parameter at the last reading."""
    owners = window.table("owner")
    states = owners[owners["role"] == Role.OPTIMIZER_STATE]
    held: dict[str, int] = defaultdict(int)
    if len(states):
        for row in states[states["sequence"] == states["sequence"].max()]:
            held[recording.strings[row["name"]].rpartition("/")[0]] += int(row["bytes"])
    return held
