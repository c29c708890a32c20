"""Where memory goes: the breakdown at the peak, the largest size of each category, and the largest blocks.

The five categories are those of the TBD paper (Zhu et al., IISWC 2018, arXiv:1803.06905), section III-D-3. Its figure 8
shows the largest size of each category. If the framework keeps its own total, the breakdown is taken at the peak of
that total and adds up to it: bytes without a reported block are unknown. Otherwise the breakdown is taken at the peak
of the blocks. The first step of a window is discarded as warm-up. The window with the highest peak gives the breakdown
if there are several memory windows.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tbdprof.analysis.memory import identities
from tbdprof.analysis.memory.account import Account
from tbdprof.analysis.memory.accounting import account, devices, left_out, windows_with_events
from tbdprof.analysis.memory.holdings import TOP, by_layer, holdings
from tbdprof.analysis.memory.peak import height
from tbdprof.analysis.without import why_without
from tbdprof.facts.arrays import Bools, Ints
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Phase, Role, Run, SpanKind
from tbdprof.facts.windows import MEMORY
from tbdprof.results.found import Found, because, reasons
from tbdprof.results.memory import CATEGORIES, Memory, OfDevice, Timeline
from tbdprof.results.reasons import NOT_COUNTED, NOT_REQUESTED

TIMELINE_POINTS = 400


def measure(recording: Recording) -> Found[Memory | None]:
    """Return the result of the memory windows that have events, or why none has any."""
    windows = windows_with_events(recording)
    measured = [_measure(recording, window) for window in windows]
    settled = [found for window, found in zip(windows, measured, strict=True) if len(window.table("step")) > 1]
    others = left_out(recording)
    remarks: dict[str, str] = {} if others is None else {RemarkOn.OTHER_DEVICES: others}
    if not measured:
        return because(why_without(recording, MEMORY, "no memory came or went in the window"), remarks)
    found = _together(measured, settled or measured)
    return Found(found, _missing(recording.run, found), remarks)


def _missing(run: Run, found: Memory) -> dict[str, str]:
    """Return the reason for each figure that is None."""
    rounding = None if found.rounding_at_peak_bytes is None else found.rounding_max_bytes
    return reasons(
        {
            "independent_peak_bytes": (
                found.independent_peak_bytes,
                run.independent_total or "the framework reports no running total",
            ),
            "whole_run_peak_bytes": (run.whole_run_peak_bytes, NOT_COUNTED),
            "rounding": (rounding, NOT_REQUESTED),
            "at_optimizer_step": (found.at_optimizer_step, "no optimizer's step was seen in the memory window"),
        }
    )


def _together(measured: Sequence[Memory], chosen: Sequence[Memory]) -> Memory:
    """Return all windows as one: the breakdown of the highest peak, the maxima over `chosen`, the sums over all."""
    highest = max(chosen, key=lambda memory: memory.peak_bytes)
    rounding = [memory.rounding_max_bytes for memory in chosen if memory.rounding_max_bytes is not None]
    updates = [memory.at_optimizer_step for memory in chosen if memory.at_optimizer_step is not None]
    return replace(
        highest,
        events=sum(memory.events for memory in measured),
        steps=sum(memory.steps for memory in measured),
        roles_max={role: max(memory.roles_max[role] for memory in chosen) for role in Role},
        category_max={name: max(memory.category_max[name] for memory in chosen) for name in CATEGORIES},
        rounding_max_bytes=max(rounding) if len(rounding) == len(chosen) else None,
        at_optimizer_step=max(updates, key=lambda sizes: sizes[Role.GRADIENT]) if updates else None,
        violations=tuple(line for memory in measured for line in memory.violations),
        mismatches=sum(memory.mismatches for memory in measured),
        outside_allocator_bytes=max(memory.outside_allocator_bytes for memory in measured),
        outside_allocator_max=_highest([memory.outside_allocator_max for memory in measured]),
    )


@dataclass(frozen=True, slots=True)
class _OfRole:
    """The values kept from the series of a role's bytes; there may be millions of events, so the series is dropped."""

    at_peak: int
    highest: int
    when_read: Ints  # each time the owners were read
    at_updates: Ints  # each time an optimizer's step began


def _measure(recording: Recording, window: Window) -> Memory:
    worked = account(recording, window)
    levels, counted = worked.levels, worked.counted
    found = height(recording, worked)
    total, peak_row, independent = found.total, found.peak_row, found.is_independent
    highest, kept = int(total[counted].max()), _kept(counted, total)
    explained = total - np.maximum(worked.unknown_bytes, 0) if independent else total
    allocator_peak = int(explained[counted].max())
    del found, total, explained
    roles, categories, category_max = _by_role(worked, peak_row, kept)
    held = {role: int(roles[role].when_read.max(initial=0)) for role in (Role.WEIGHT, Role.BUFFER)}
    seen = levels.sequence >= worked.seen_from  # what a thread frees before it is followed is not reported
    broken = identities.check(recording, window, worked.blocks, worked.unknown_bytes[seen], held, highest)
    sizes = window.table("allocation")
    # The rounding of allocations without both sizes is part of their category.
    has_rounding = bool(((sizes["requested_bytes"] >= 0) & (sizes["allocated_bytes"] >= 0)).any())
    live = holdings(worked, peak_row)
    outside = _outside_allocator(worked)
    return Memory(
        device=" + ".join(devices(recording.run)),
        events=len(levels.sequence),
        steps=_steps(worked),
        allocator_peak_bytes=allocator_peak,
        independent_peak_bytes=int(levels.total_bytes[peak_row]) if independent else None,
        roles_at_peak={role: each.at_peak for role, each in roles.items()},
        rounding_at_peak_bytes=int(levels.rounding_bytes[peak_row]) if has_rounding else None,
        roles_max={role: each.highest for role, each in roles.items()},
        category_max=category_max,
        rounding_max_bytes=int(levels.rounding_bytes[counted].max()) if has_rounding else None,
        at_optimizer_step=_at_optimizer_step(roles),
        top_at_peak=tuple(live[:TOP]),
        by_layer=by_layer(live, int(worked.scratch_bytes[peak_row]) + max(int(worked.unknown_bytes[peak_row]), 0)),
        timeline=Timeline(_steps(worked), levels.time_ns[kept], categories),
        violations=broken.lines,
        mismatches=broken.count,
        outside_allocator_bytes=max((sum(each.values()) for each in outside), default=0),
        by_device=_by_device(recording, worked, peak_row),
        outside_allocator_max=_highest(outside),
    )


def _by_device(recording: Recording, worked: Account, peak: int) -> tuple[OfDevice, ...]:
    """Return what each of several devices holds at the peak."""
    if len(devices(recording.run)) < 2:
        return ()
    rows = worked.window.table("allocation")
    addresses, first = np.unique(rows["address"], return_index=True)  # no two devices share an address
    live = worked.live(peak)
    place = rows["device"][first[np.searchsorted(addresses, worked.blocks.address[live])]]
    found = []
    for device in np.unique(place):
        mine = live[place == device]
        sizes, roles = worked.blocks.size_bytes[mine], worked.roles[mine]
        parts = {name: int(sizes[np.isin(roles, members)].sum()) for name, members in CATEGORIES.items()}
        found.append(OfDevice(recording.strings[device], int(sizes.sum()), parts))
    return tuple(sorted(found, key=lambda each: each.device))


def _by_role(worked: Account, peak: int, kept: Ints) -> tuple[dict[Role, _OfRole], dict[str, Ints], dict[str, int]]:
    """Return the values kept of each role, the bytes of each category after the kept events, and its largest size."""
    read, updates = _readings(worked), _updates(worked)
    roles, categories, category_max = dict[Role, _OfRole](), dict[str, Ints](), dict[str, int]()
    for name, members in CATEGORIES.items():
        level = np.zeros(len(worked.levels.sequence), np.int64)
        for role in members:
            series = worked.series(role)
            roles[role] = _OfRole(int(series[peak]), int(series[worked.counted].max()), series[read], series[updates])
            level += series
        categories[name], category_max[name] = level[kept], int(level[worked.counted].max())
    return {role: roles[role] for role in Role}, categories, category_max


def _steps(worked: Account) -> int:
    return max(len(worked.marks) - 1, 1)


def _readings(worked: Account) -> Ints:
    """Return the events after which the owners of weights and buffers were read.

    Between two readings there may be more bytes: while an update copies a weight, both copies count as the weight.
    """
    owners = worked.window.table("owner")
    sequences = np.unique(owners["sequence"][np.isin(owners["role"], (Role.WEIGHT, Role.BUFFER))])
    read: Ints = np.searchsorted(worked.levels.sequence, sequences) - 1
    return read[read >= 0]


def _updates(worked: Account) -> Ints:
    """Return the events after which an optimizer's step began, except in the step discarded as warm-up."""
    rows = worked.tree.rows
    updates = (rows["kind"] == SpanKind.PHASE) & (rows["phase"] == Phase.UPDATE)
    begins = np.sort(rows["first_sequence"][updates])
    if len(worked.marks) > 1:
        begins = begins[begins > worked.marks[0]]
    places: Ints = np.searchsorted(worked.levels.sequence, begins) - 1
    return places[places >= 0]


def _at_optimizer_step(roles: Mapping[Role, _OfRole]) -> Mapping[Role, int] | None:
    """Return the breakdown at the start of the optimizer's step with the most gradients, or None without a step."""
    if not len(roles[Role.GRADIENT].at_updates):
        return None
    best = int(np.argmax(roles[Role.GRADIENT].at_updates))
    return {role: int(each.at_updates[best]) for role, each in roles.items()}


def _kept(counted: Bools, total: Ints) -> Ints:
    """Return the event with the largest total in each of several equal parts, so that the peak is among them."""
    rows = np.flatnonzero(counted)
    stretches = np.array_split(rows, min(len(rows), TIMELINE_POINTS)) if len(rows) else []
    return np.array([stretch[np.argmax(total[stretch])] for stretch in stretches], np.int64)


def _outside_allocator(worked: Account) -> list[dict[Role, int]]:
    """Return the bytes by role that owners held in memory without a block, at each reading at which they held any."""
    owners = worked.window.table("owner")
    owners = owners[owners["sequence"] >= worked.seen_from]
    lost = owners[worked.blocks.find(owners["address"], owners["sequence"]) < 0]
    readings: dict[int, dict[int, tuple[Role, int]]] = defaultdict(dict)
    for row in lost:
        readings[int(row["sequence"])][int(row["address"])] = Role(row["role"]), int(row["bytes"])
    found = []
    for held in readings.values():
        sizes: dict[Role, int] = defaultdict(int)
        for role, size in held.values():
            sizes[role] += size
        found.append(dict(sizes))
    return found


def _highest(readings: Sequence[Mapping[Role, int]]) -> dict[Role, int]:
    """Return the most bytes of each role."""
    found: dict[Role, int] = {}
    for each in readings:
        found |= {role: max(size, found.get(role, 0)) for role, size in each.items()}
    return found
