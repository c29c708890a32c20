"""The kernels of a run's kernels windows: when each ran, in which layer and phase, and its FLOP count.

On a GPU a kernel is what the device reported. On the CPU a kernel is an operator's own time: its span minus the
operators inside it on the same thread. A phase or a layer inside an operator (checkpointing makes them) does not hide
the operators inside that phase or layer.

FLOPs belong to the outermost operator that has a `Work`. The kernels below it share its FLOPs and bytes in proportion
to their own time, or equally if none took any time. Copies and bookkeeping inside another kind of operation get no
share and no count. The first block of each window is discarded as warm-up.
"""

import re
from collections import Counter
from dataclasses import dataclass, fields

import numpy as np

from tbdprof.analysis.kernels.flops import count
from tbdprof.analysis.kernels.kernels import PRODUCTS, Kernels
from tbdprof.analysis.kernels.places import Places, of_device, of_operators
from tbdprof.analysis.spans import SpanTree
from tbdprof.analysis.time.consumption import totals
from tbdprof.analysis.time.time_blocks import settled
from tbdprof.facts.arrays import Bools, Codes, Floats, Texts, narrowed, ranked
from tbdprof.facts.consumed import StepCountKind
from tbdprof.facts.counters import SYNCHRONIZING
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Operation, Phase, SpanKind, Strings
from tbdprof.facts.windows import KERNELS
from tbdprof.facts.work import parse

DOING_NOTHING = (Operation.BOOKKEEPING, Operation.COPY, Operation.CAST)  # no part of what an operator around computes
_WITHIN = re.compile(r"[DA](to|2)[DA]\b")  # "Memcpy DtoD (Device -> Device)", "MemcpyD2D"; A is an array


@dataclass(frozen=True, slots=True)
class _Shares:
    """Each kernel's share of the `Work` that it is part of."""

    flops: Floats
    product_flops: Floats  # of matmuls and convolutions, in whatever phase
    moved_bytes: Floats
    precision: Texts
    of_product: Bools
    operation: Codes


def gather(recording: Recording, window_name: str = KERNELS) -> Kernels | None:
    """Return the kernels of the run's device, or None if no window of that name has counted steps and kernels.

    Several windows are joined into one.
    """
    strings = Strings(tuple(recording.strings.since(0)))
    pieces = [_piece(recording, window, strings) for window in recording.named(window_name)]
    found = [piece for piece in pieces if piece is not None]
    return _joined(found) if found else None


def has_kernels(recording: Recording, window: Window) -> bool:
    """Return whether a window has kernels of the run's device."""
    return len(recording.of_device(window.table("kernel"))) > 0 or (
        recording.run.device == "cpu" and bool((window.table("span")["kind"] == SpanKind.OPERATOR).any())
    )


def _piece(recording: Recording, window: Window, strings: Strings) -> Kernels | None:
    steps = settled(window.table("step"))
    if not len(steps) or not has_kernels(recording, window):
        return None
    tree = SpanTree(window.table("span"))
    rows = recording.of_device(window.table("kernel"))
    places = of_device(rows, tree, steps) if len(rows) else of_operators(tree, steps)
    shares = _shared(places, tree, strings)
    span, phase = places.span, tree.phase(places.span)
    data, waits = tree.rows[tree.rows["phase"] == Phase.DATA], recording.samples(window, SYNCHRONIZING)
    return Kernels(
        strings=strings,
        device=recording.run.device,
        name=places.name,
        operator=tree.name(tree.outermost(span, SpanKind.OPERATOR)),
        layer=tree.name(tree.layer(span)),
        phase=phase,
        operation=shares.operation,
        grid=narrowed(places.grid),
        block=narrowed(places.block),
        thread_or_stream=narrowed(places.thread_or_stream),
        start_ns=places.start_ns,
        end_ns=places.end_ns,
        own_ns=places.own_ns,
        step=places.step,
        crosses=_crosses(places, strings) & (shares.operation == Operation.COPY),
        flops=shares.flops,
        product_flops=shares.product_flops,
        of_model=~np.isin(phase, _beside_the_model(phase)),
        moved_bytes=shares.moved_bytes,
        precision=shares.precision,
        of_product=shares.of_product,
        units=float(steps["units"].sum()),
        other_units=totals(window, recording.strings, StepCountKind.UNITS, steps),
        step_start_ns=steps["start_ns"].copy(),
        step_ns=steps["end_ns"] - steps["start_ns"],
        data_start_ns=data["start_ns"].copy(),
        data_end_ns=data["end_ns"].copy(),
        wait_start_ns=waits["start_ns"],
        wait_end_ns=waits["time_ns"],
    )


def _beside_the_model(phase: Codes) -> tuple[Phase, ...]:
    """Return the phases whose FLOPs are not the model's; OUTSIDE is one of them if a forward pass was seen."""
    aside = (Phase.RECOMPUTE, Phase.UPDATE, Phase.DATA)
    return (*aside, Phase.OUTSIDE) if (phase == Phase.FORWARD).any() else aside


def _joined(pieces: list[Kernels]) -> Kernels:
    if len(pieces) == 1:
        return pieces[0]
    before = np.cumsum([0, *(piece.steps for piece in pieces)])
    columns = {
        item.name: np.concatenate([getattr(piece, item.name) for piece in pieces])
        for item in fields(Kernels)
        if isinstance(getattr(pieces[0], item.name), np.ndarray)
    }
    columns["step"] = np.concatenate([piece.step + first for piece, first in zip(pieces, before, strict=False)])
    units = sum(piece.units for piece in pieces)
    others = Counter[str]()
    for piece in pieces:
        others.update(piece.other_units)
    return Kernels(strings=pieces[0].strings, device=pieces[0].device, units=units, other_units=dict(others), **columns)


def _shared(places: Places, tree: SpanTree, strings: Strings) -> _Shares:
    """Divide each outermost `Work` among the kernels below it."""
    top = tree.topmost(places.span, tree.rows["work"] >= 0)
    does_nothing = np.isin(tree.rows["operation"], DOING_NOTHING)
    apart = (top >= 0) & (places.moves | does_nothing[places.span]) & ~does_nothing[top]
    sends = tree.rows["operation"] == Operation.COMMUNICATION
    apart |= (top >= 0) & sends[top] & ~sends[places.span]  # what it computes beside is not what it sends
    spans, work = ranked(np.where(apart, np.int32(-1), top))
    own, sharers = np.bincount(work, places.own_ns), np.bincount(work)
    with np.errstate(invalid="ignore"):
        share = np.where(own[work] > 0, places.own_ns / own[work], 1.0 / sharers[work])
    texts, text = np.unique(np.where(spans >= 0, tree.rows["work"][spans], -1), return_inverse=True)
    found = [_counted(int(each), strings) for each in texts]
    flops, products, moved = (np.array([each[column] for each in found])[text][work] * share for column in range(3))
    precision, operation = (np.array([each[column] for each in found], np.int32)[text][work] for column in (3, 4))
    return _Shares(
        flops=flops,
        product_flops=products,
        moved_bytes=np.where(np.isfinite(places.moved_bytes), places.moved_bytes, moved),
        precision=precision,
        of_product=np.isin(operation, PRODUCTS),
        operation=_operations(places, tree, operation),
    )


def _operations(places: Places, tree: SpanTree, of_work: Texts) -> Codes:
    """Return each kernel's operation: its span's, or its `Work`'s if the span says nothing."""
    own = np.where(places.span >= 0, tree.rows["operation"][places.span], Operation.OTHER)
    kind = np.where(own == Operation.OTHER, of_work, own)
    copied = places.moves & (kind != Operation.COMMUNICATION)
    return np.where(copied, Operation.COPY, kind).astype(np.uint8)


def _crosses(places: Places, strings: Strings) -> Bools:
    """Return which copies enter or leave the device, by the direction that clients of CUPTI put into their names."""
    names, name = ranked(places.name)
    stays = np.array([_WITHIN.search(strings[int(each)]) is not None for each in names], bool)
    return places.copies & ~stays[name]


def _counted(text: int, strings: Strings) -> tuple[float, float, float, int, int]:
    """Return a `Work`'s FLOPs, those of its products, its bytes, the text of its precision and its operation."""
    if text < 0:
        return np.nan, 0.0, np.nan, -1, int(Operation.OTHER)
    work = parse(strings[text])
    flops = count(work)
    total = np.nan if flops is None else float(flops.total)
    moved = np.nan if work.moved_bytes is None else float(work.moved_bytes)
    return total, float(flops.model if flops else 0), moved, strings.add(work.precision), int(work.operation)
