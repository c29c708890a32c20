"""The identities that must hold in every memory window; each violation is reported in one line.

1. After every event the known blocks do not exceed the framework's own running total. (The difference is the unknown
   category; it is never hidden.) No address is allocated twice at a time. A free has the size of its allocation.
2. Each owned tensor is as large as its shape and item size say, and lies within its block. Weights and buffers hold no
   more than the parameter list. Optimizer state has the size that the optimizer's definition gives.
3. The peak is not above the framework's own peak over the whole run.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tbdprof.analysis.memory.blocks import Blocks
from tbdprof.facts.arrays import Bools, Ints
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import AllocationKind, Optimizer, Parameter, Role

_WITHIN = re.compile(r"/| \[")  # before the parts of a sparse array: "weight/values", "weight [values]"
# The number of state arrays per parameter of each optimizer, by its definition; other optimizers are not checked.
STATE_ARRAYS = {"adam": 2, "adamw": 2, "rmsprop": 1, "sgd": 0}


@dataclass(frozen=True, slots=True)
class Findings:
    """The violations found, each in one line, and how many single events or tensors they stand for."""

    lines: tuple[str, ...]
    count: int


def check(
    recording: Recording,
    window: Window,
    blocks: Blocks,
    unknown_bytes: Ints,
    held_bytes: Mapping[Role, int],
    peak_bytes: int,
) -> Findings:
    """Return the violations in a memory window; `held_bytes` is the most that a role held when owners were read."""
    negative = unknown_bytes[unknown_bytes < 0]
    lines = []
    if len(negative):
        most = -int(negative.min())
        lines.append(f"after {len(negative)} events the blocks exceed the framework's total, by up to {most} bytes")
    tensors = [
        *_reports(recording, window),
        *_tensor_sizes(recording, window),
        *_beyond_their_blocks(recording, window, blocks),
        *_sums(recording, window, held_bytes),
        *_optimizer_states(recording, window),
    ]
    whole = recording.run.whole_run_peak_bytes
    peaks = []
    if whole is not None and peak_bytes > whole:
        peaks.append(f"the peak, {peak_bytes} bytes, is above the framework's own, {whole} bytes")
    return Findings((*lines, *tensors, *peaks), len(negative) + len(tensors) + len(peaks))


def _reports(recording: Recording, window: Window) -> Iterator[str]:
    """Yield a message for each contradiction among the reported allocations and frees."""
    rows = window.table("allocation")
    order = np.lexsort((rows["sequence"], rows["address"], rows["device"]))

    def changes(name: str) -> Bools:
        column = rows[name][order]
        differs: Bools = column[1:] != column[:-1]
        return differs

    same = ~changes("address") & ~changes("device")
    gone = rows["kind"][order] == AllocationKind.FREED
    lived, freed = ~gone[:-1], gone[1:]
    twice = int((same & lived & ~freed).sum())
    if twice:
        yield f"{twice} allocations at an address that was still in use"
    differ = int((same & lived & freed & (changes("requested_bytes") | changes("allocated_bytes"))).sum())
    if differ:
        yield f"{differ} frees of another size than was allocated"


def _beyond_their_blocks(recording: Recording, window: Window, blocks: Blocks) -> Iterator[str]:
    owners = window.table("owner")
    place = blocks.find(owners["address"], owners["sequence"])
    room = (blocks.size_bytes + blocks.rounding_bytes)[place] if len(blocks) else place
    beyond = (place >= 0) & (owners["bytes"] > room)
    for name, role, size, space in {
        (recording.strings[row["name"]], Role(row["role"]).name.lower(), int(row["bytes"]), int(space))
        for row, space in zip(owners[beyond], room[beyond], strict=True)
    }:
        yield f"{role} {name} holds {size} bytes in a block of {space}"


def _sums(recording: Recording, window: Window, held_bytes: Mapping[Role, int]) -> Iterator[str]:
    """Yield the roles that hold more than is listed, where the list has all: a model may be gone when it is made."""
    known, owners = {item.name for item in recording.run.parameters}, window.table("owner")
    for role, held in held_bytes.items():
        listed = _listed_bytes(recording, role)
        names = (recording.strings[name] for name in np.unique(owners["name"][owners["role"] == role]))
        if held > listed and all(_WITHIN.split(name)[0] in known for name in names):
            yield f"{role.name.lower()}s hold {held} bytes, the parameter list says {listed}"


def _tensor_sizes(recording: Recording, window: Window) -> Iterator[str]:
    """Yield the tensors of the wrong size, unless their sum is right: parameters may share a storage (as in cuDNN)."""
    expected = {item.name: _bytes(item) for item in recording.run.parameters}
    owners = window.table("owner")
    for role in (Role.WEIGHT, Role.BUFFER, Role.GRADIENT):
        rows = owners[owners["role"] == role]
        wrong: dict[str, int] = {}
        for sequence in np.unique(rows["sequence"]):
            read = rows[rows["sequence"] == sequence]
            if int(read["bytes"].sum()) != _listed_bytes(recording, role):
                sizes = {recording.strings[row["name"]]: int(row["bytes"]) for row in read}
                wrong |= {name: size for name, size in sizes.items() if size != expected.get(name, size)}
        for name, size in wrong.items():
            yield f"{role.name.lower()} {name} holds {size} bytes, its shape says {expected[name]}"


def _listed_bytes(recording: Recording, role: Role) -> int:
    listed = (item for item in recording.run.parameters if item.is_buffer == (role == Role.BUFFER))
    return sum(_bytes(item) if item.held_bytes is None else item.held_bytes for item in listed)


def _bytes(parameter: Parameter) -> int:
    count = parameter.item_bytes
    for length in parameter.shape:
        count *= length
    return count


def _optimizer_states(recording: Recording, window: Window) -> Iterator[str]:
    held = _state_bytes(recording, window)
    parameters = {item.name: item for item in recording.run.parameters}
    updates = Counter(name for optimizer in recording.run.optimizers for name in set(optimizer.parameters))
    for optimizer in recording.run.optimizers:
        arrays = state_arrays(optimizer)
        if arrays is None:
            continue
        for name in optimizer.parameters:
            if name not in held or name not in parameters:
                continue  # no state yet, as before a parameter's first gradient
            if updates[name] > 1:
                continue  # the names do not say whose state it is: one optimizer may wrap another, or come after it
            expected = int(arrays * _bytes(parameters[name]) + optimizer.settings.get("scalar_bytes", 0))
            for size in held[name]:
                if size != expected:
                    yield f"optimizer state of {name} holds {size} bytes, {optimizer.kind} says {expected}"


def state_arrays(optimizer: Optimizer) -> int | None:
    """Return how many arrays of a parameter's size an optimizer keeps for it, or None if not in the table."""
    if optimizer.kind not in STATE_ARRAYS:
        return None
    extra = sum(bool(optimizer.settings.get(setting, 0)) for setting in ("momentum", "amsgrad", "centered"))
    return STATE_ARRAYS[optimizer.kind] + extra


def _state_bytes(recording: Recording, window: Window) -> Mapping[str, list[int]]:
    """Return the bytes of state of each parameter at the last reading, on each device that has any."""
    owners = window.table("owner")
    states = owners[owners["role"] == Role.OPTIMIZER_STATE]
    held: dict[tuple[str, int], int] = defaultdict(int)
    if len(states):
        for row in states[states["sequence"] == states["sequence"].max()]:
            held[recording.strings[row["name"]].rpartition("/")[0], int(row["device"])] += int(row["bytes"])
    found: dict[str, list[int]] = defaultdict(list)
    for (name, _), size in held.items():
        found[name].append(size)
    return found
