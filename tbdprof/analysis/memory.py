"""Where memory goes: the breakdown at the peak, the largest each category ever was, and what holds it.

The five categories are those of seed 003, section III-D-3, whose figure 8 shows the largest size each ever had; the
breakdown at the peak instant adds up to the allocator's peak. Only steps after a window's first count, which settles.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tbdprof.analysis import identities
from tbdprof.analysis.blocks import NEVER, Blocks, Bools, Ints, Levels, lifetimes, running
from tbdprof.analysis.roles import CATEGORIES, Owned, Roles, SpanTree, classify, owned
from tbdprof.recording import Recording, Window
from tbdprof.records import AllocationKind, Phase, Role, SpanKind, Table

TOP = 20
TIMELINE_POINTS = 400


@dataclass(frozen=True, slots=True)
class Holding:
    """A block that was live at the peak. What is not known is None."""

    name: str | None
    role: Role
    layer: str | None
    operator: str | None
    shape: str | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bytes of each category after each of some events (the largest of every stretch is among them)."""

    time_ns: Ints
    categories: Mapping[str, Ints]


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one device over the steps of the memory windows that count."""

    device: str
    events: int
    steps: int
    allocator_peak_bytes: int
    independent_peak_bytes: int | None
    roles_at_peak: Mapping[Role, int]
    rounding_at_peak_bytes: int | None
    roles_max: Mapping[Role, int]
    category_max: Mapping[str, int]
    rounding_max_bytes: int | None
    at_optimizer_step: Mapping[Role, int] | None
    top_at_peak: tuple[Holding, ...]
    by_layer: tuple[tuple[str | None, int], ...]
    timeline: Timeline
    violations: tuple[str, ...]
    mismatches: int
    outside_allocator_bytes: int  # owned, but in memory the allocator never gave (numpy's, a mapped file)

    def category_at_peak(self, category: str) -> int:
        """Return the bytes of a category at the peak."""
        return sum(self.roles_at_peak[role] for role in CATEGORIES[category])


@dataclass(frozen=True, slots=True)
class Account:
    """A memory window worked out: its blocks, their roles, and the levels after each event."""

    blocks: Blocks
    levels: Levels
    owned: Owned
    tree: SpanTree
    roles: Roles
    scratch_bytes: Ints  # after each event: no reported block, but it came and went within one operator
    unknown_bytes: Ints  # after each event: of the framework's total, what else no reported block explains
    counted: Bools  # the events within the steps that count
    marks: Ints


def measure(recording: Recording) -> Memory | None:
    """Return the memory of the last memory window that saw any event, None where none did."""
    for window in reversed(recording.named("memory")):
        if (_on_device(recording, window)["kind"] != AllocationKind.EXISTING).any():
            return _measure(recording, window)
    return None


def account(recording: Recording, window: Window) -> Account:
    """Work out the blocks of a memory window and what each is for."""
    allocations = _on_device(recording, window)
    blocks, levels = lifetimes(allocations)
    tree = SpanTree(window.table("span"))
    marks = np.sort(window.table("step")["last_sequence"])
    named = owned(blocks, window.table("owner"))
    roles = classify(blocks, named, tree, marks)
    unexplained = _unexplained(levels, recording)
    scratch = _scratch(unexplained, allocations, blocks, tree) * (recording.run.threads != 1)
    return Account(
        blocks,
        levels,
        named,
        tree,
        roles,
        scratch,
        unexplained - scratch,
        _counted(levels, marks),
        marks,
    )


def _on_device(recording: Recording, window: Window) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    allocations = window.table("allocation")
    wanted = {index for index in np.unique(allocations["device"]) if recording.strings[index] == recording.run.device}
    return allocations[np.isin(allocations["device"], list(wanted))]


def _unexplained(levels: Levels, recording: Recording) -> Ints:
    """Return the framework's total minus the known blocks, after each event.

    Where the framework has counted since before the model, all of it; where it began later, what has come since.
    """
    if levels.base_total_bytes < 0:
        return np.zeros(len(levels.sequence), np.int64)
    known = levels.known_bytes + levels.rounding_bytes
    offset = 0
    if recording.run.independent_total is not None:
        offset = levels.base_bytes + levels.base_rounding_bytes - levels.base_total_bytes
    return levels.total_bytes + offset - known


def _scratch(unexplained: Ints, allocations: Table, blocks: Blocks, tree: SpanTree) -> Ints:
    """Return what only the total tells, and tells no more of before and after the operator in which it did.

    So the memory of an operator's worker threads looks where a framework reports none of it. A free that nobody
    reported the allocation of speaks of a lost report instead: there nothing is claimed.
    """
    events = np.sort(allocations[allocations["kind"] != AllocationKind.EXISTING], order="sequence")
    operator = tree.outermost(tree.index(events["span"]), SpanKind.OPERATOR)
    begins = np.flatnonzero(np.diff(operator, prepend=-2))
    ends = np.append(begins[1:], len(events))
    lost = (events["kind"] == AllocationKind.FREED) & ~np.isin(events["sequence"], blocks.end)
    sure = (operator[begins] >= 0) & (begins > 0) & (ends < len(events)) & ~np.logical_or.reduceat(lost, begins)
    around = np.maximum(unexplained[begins - 1], unexplained[ends % len(events)])
    level = np.where(sure, np.maximum(around, 0), NEVER)
    scratch: Ints = np.maximum(unexplained - np.repeat(level, ends - begins), 0)
    return scratch


def _counted(levels: Levels, marks: Ints) -> Bools:
    """Leave out the first step of a window, which settles, where there is another."""
    everything = np.ones(len(levels.sequence), bool)
    if len(marks) < 2:
        return everything
    later: Bools = (levels.sequence > marks[0]) & (levels.sequence < marks[-1])
    return later if later.any() else everything


def _measure(recording: Recording, window: Window) -> Memory:
    worked = account(recording, window)
    levels, counted = worked.levels, worked.counted
    series = {role: _series(worked, role) for role in Role}
    rounding = levels.rounding_bytes
    total = np.sum([*series.values(), rounding], axis=0)
    peak = int(np.argmax(np.where(counted, total, -1)))
    categories = {name: np.sum([series[role] for role in roles], axis=0) for name, roles in CATEGORIES.items()}
    independent = recording.run.independent_total is None and levels.base_total_bytes >= 0
    read = np.searchsorted(levels.sequence, np.unique(window.table("owner")["sequence"])) - 1
    held = {role: int(series[role][read[read >= 0]].max(initial=0)) for role in (Role.WEIGHT, Role.BUFFER)}
    found = identities.check(recording, window, worked.blocks, worked.unknown_bytes, held, int(total[peak]))
    told = bool((window.table("allocation")["requested_bytes"] >= 0).all())
    return Memory(
        device=recording.run.device,
        events=len(levels.sequence),
        steps=max(len(worked.marks) - 1, 1),
        allocator_peak_bytes=int(total[peak]),
        independent_peak_bytes=int(levels.total_bytes[counted].max()) if independent else None,
        roles_at_peak={role: int(values[peak]) for role, values in series.items()},
        rounding_at_peak_bytes=int(rounding[peak]) if told else None,
        roles_max={role: int(values[counted].max()) for role, values in series.items()},
        category_max={name: int(values[counted].max()) for name, values in categories.items()},
        rounding_max_bytes=int(rounding[counted].max()) if told else None,
        at_optimizer_step=_at_optimizer_step(worked, series),
        top_at_peak=_top(recording, window, worked, _live(worked, peak)),
        by_layer=_by_layer(recording, window, worked, peak),
        timeline=_timeline(levels, categories, total, counted),
        violations=found.lines,
        mismatches=found.count,
        outside_allocator_bytes=_outside_allocator(worked, window),
    )


def _series(worked: Account, role: Role) -> Ints:
    blocks = worked.blocks
    series = running(worked.levels.sequence, blocks, blocks.size_bytes, worked.roles == role)
    if role == Role.WORKSPACE:
        return series + worked.scratch_bytes
    return series + np.maximum(worked.unknown_bytes, 0) if role == Role.UNKNOWN else series


def _live(worked: Account, row: int) -> Ints:
    at = worked.levels.sequence[row]
    return np.flatnonzero((worked.blocks.start <= at) & (at < worked.blocks.end))


def _at_optimizer_step(worked: Account, series: Mapping[Role, Ints]) -> Mapping[Role, int] | None:
    """Return the breakdown where an optimizer's step began, at the one with the most gradient; None without a step."""
    rows = worked.tree.rows
    updates = (rows["kind"] == SpanKind.PHASE) & (rows["phase"] == Phase.UPDATE)
    begins = np.sort(rows["first_sequence"][updates])
    if len(worked.marks) > 1:
        begins = begins[begins > worked.marks[0]]
    places = np.searchsorted(worked.levels.sequence, begins) - 1
    places = places[places >= 0]
    if not len(places):
        return None
    best = int(places[np.argmax(series[Role.GRADIENT][places])])
    return {role: int(values[best]) for role, values in series.items()}


def _layers(recording: Recording, worked: Account) -> list[str | None]:
    """Return the layer of each block: its owner's, else the layer around it, else its forward operator's."""
    tree = worked.tree
    made = tree.index(worked.blocks.span)
    around = tree.nearest(made, tree.rows["kind"] == SpanKind.LAYER)
    around = np.where(around >= 0, around, _layer_of_forward(tree, made))
    return [recording.strings[int(tree.rows["name"][row])] if row >= 0 else None for row in around]


def _layer_of_forward(tree: SpanTree, made: Ints) -> Ints:
    """Return, for blocks made in backward, the layer span of the forward operator with the same number, -1: none."""
    rows = tree.rows
    numbered = rows["forward"] >= 0
    forward = np.flatnonzero(numbered & (rows["phase"] == Phase.FORWARD))
    layer = tree.nearest(forward, rows["kind"] == SpanKind.LAYER)
    pairs = zip(rows["forward"][forward].tolist(), layer.tolist(), strict=True)
    by_number = {number: row for number, row in pairs if row >= 0}
    backward = tree.nearest(made, numbered)
    numbers = np.where(backward >= 0, rows["forward"][np.maximum(backward, 0)], -1)
    return np.array([by_number.get(int(number), -1) for number in numbers], np.int64)


def _describe(recording: Recording, window: Window, worked: Account, live: Ints) -> list[Holding]:
    owners, strings = window.table("owner"), recording.strings
    layers = _layers(recording, worked)
    outer = worked.tree.outermost(worked.tree.index(worked.blocks.span), SpanKind.OPERATOR)
    holdings = []
    for block in live.tolist():
        record = int(worked.owned.record[block]) if worked.owned.role[block] == worked.roles[block] else -1
        name = strings[int(owners["name"][record])] if record >= 0 else None
        shape = int(owners["shape"][record]) if record >= 0 else int(worked.blocks.shape[block])
        operator = int(worked.tree.rows["name"][outer[block]]) if outer[block] >= 0 else -1
        role = Role(int(worked.roles[block]))
        holdings.append(
            Holding(
                name=name,
                role=role,
                layer=_owner_layer(name, role) if name is not None else layers[block],
                operator=strings[operator] or None,
                shape=strings[shape] or None,
                size_bytes=int(worked.blocks.size_bytes[block]),
            )
        )
    return holdings


def _owner_layer(name: str, role: Role) -> str | None:
    """Return the layer of a named block: `layer1.0.conv1.weight` belongs to `layer1.0.conv1`."""
    if role in (Role.INPUT, Role.WORKSPACE):
        return None
    parameter = name.rpartition("/")[0] or name
    return parameter.rpartition(".")[0]


def _top(recording: Recording, window: Window, worked: Account, live: Ints) -> tuple[Holding, ...]:
    largest = live[np.argsort(-worked.blocks.size_bytes[live], kind="stable")][:TOP]
    return tuple(_describe(recording, window, worked, largest))


def _by_layer(recording: Recording, window: Window, worked: Account, peak: int) -> tuple[tuple[str | None, int], ...]:
    sums: dict[str | None, int] = defaultdict(int)
    for holding in _describe(recording, window, worked, _live(worked, peak)):
        sums[holding.layer] += holding.size_bytes
    unreported = int(worked.scratch_bytes[peak] + max(worked.unknown_bytes[peak], 0))
    if unreported:
        sums[None] += unreported
    return tuple(sorted(sums.items(), key=lambda item: -item[1]))


def _timeline(levels: Levels, categories: Mapping[str, Ints], total: Ints, counted: Bools) -> Timeline:
    """Keep the largest event of each of some equal stretches, so that the peak is always among them."""
    rows = np.flatnonzero(counted)
    stretches = np.array_split(rows, min(len(rows), TIMELINE_POINTS)) if len(rows) else []
    kept = np.array([stretch[np.argmax(total[stretch])] for stretch in stretches], np.int64)
    return Timeline(levels.time_ns[kept], {name: values[kept] for name, values in categories.items()})


def _outside_allocator(worked: Account, window: Window) -> int:
    owners = window.table("owner")
    lost = worked.blocks.find(owners["address"], owners["sequence"]) < 0
    sizes = {int(row["address"]): int(row["bytes"]) for row in owners[lost]}
    return sum(sizes.values())
