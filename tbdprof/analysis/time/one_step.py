"""One step of the kernels windows as a picture: what each thread and stream did, and why the device idled.

The step is the one whose time is nearest to the median of the counted steps. On a lane of the host are the outermost
operators of a thread, on a lane of a device the kernels and copies of a stream. Of a lane the `MOST_BARS` longest are
drawn by themselves, and the longest that begins in each of as many equal parts of the step. Those between two of these
are drawn as one, with their number and their own sum. Of what the device did, the `MOST_PIECES` longest pieces are
drawn. If there are more, equal slices of the step lie behind them, each by what takes most of it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from tbdprof.analysis.kernels.executions import gather
from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.spans import SpanTree
from tbdprof.analysis.time.timeline import DATA, PHASES, timeline
from tbdprof.analysis.without import why_without
from tbdprof.facts.arrays import Bools, Ints, Rows
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Phase, SpanKind
from tbdprof.facts.rows import Table
from tbdprof.facts.windows import KERNELS
from tbdprof.results.found import Found, because
from tbdprof.results.pictures import Bar, Lane, OneStep, Piece

MOST_BARS = 200  # of a lane
MOST_LANES = 12
MOST_PIECES = 1000
SLICES = 500
BUSY, DATA_WAIT, LAUNCHING, SYNCHRONIZATION, COPIES, COMMUNICATION = (
    "busy",
    "waiting for data",
    "launching",
    "synchronization",
    "copies",
    "communication",
)
STATES = (BUSY, DATA_WAIT, LAUNCHING, SYNCHRONIZATION, COPIES, COMMUNICATION)


def one_step(recording: Recording) -> Found[OneStep | None]:
    """Return the picture of a step, or why there is none."""
    kernels = gather(recording)
    if kernels is None or not len(kernels) or not kernels.step_ns.sum():
        return because(why_without(recording, KERNELS, "no operator or kernel ran in the counted steps"))
    chosen = int(np.argmin(np.abs(kernels.step_ns - np.median(kernels.step_ns))))
    start = int(kernels.step_start_ns[chosen])
    end = start + int(kernels.step_ns[chosen])
    window, index = _window_of(recording, start)
    pieces = _pieces(kernels, chosen, start)
    drawn = _longest(pieces)
    lanes = [*_device_lanes(recording, window, start, end), *_host_lanes(recording, window, start, end)]
    omitted = len(pieces) - len(drawn)
    slices = _slices(pieces, start, end) if omitted else ()
    return Found(OneStep(index, start, end, kernels.steps, tuple(drawn), _sums(pieces), tuple(lanes), omitted, slices))


def _window_of(recording: Recording, start_ns: int) -> tuple[Window, int]:
    """Return the kernels window with the step that starts at a time, and this step's number in the run."""
    for window in recording.named(KERNELS):
        steps = window.table("step")
        found = steps["index"][steps["start_ns"] == start_ns]
        if len(found):
            return window, int(found[0])
    raise AssertionError("the step is of no kernels window")


def _pieces(kernels: Kernels, chosen: int, start_ns: int) -> list[Piece]:
    """Return what the device did in a step, piece by piece; neighbours alike are one."""
    course = timeline(kernels)
    mine = course.step == chosen
    length = course.length_ns[mine].astype(np.int64)
    phase, busy, waiting, loading = (each[mine] for each in (course.phase, course.busy, course.waiting, course.loading))
    copies, communication = course.only_copies[mine], course.only_communication[mine]
    idle = ~busy & ~communication
    conditions = [communication, copies, (idle & (phase == DATA)) | loading, idle & waiting, idle]
    order = (COMMUNICATION, COPIES, DATA_WAIT, SYNCHRONIZATION, LAUNCHING)
    state = np.select(conditions, [STATES.index(name) for name in order], STATES.index(BUSY))
    key = phase.astype(np.int64) * len(STATES) + state
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    ends = start_ns + np.cumsum(length)
    starts = ends - length
    last = np.append(begins[1:], len(key)) - 1
    return [
        Piece(PHASES[int(phase[a])], STATES[int(state[a])], int(starts[a]), int(ends[b]))
        for a, b in zip(begins.tolist(), last.tolist(), strict=True)
    ]


def _longest(pieces: list[Piece]) -> list[Piece]:
    """Return the longest pieces, in the order of time."""
    kept = sorted(pieces, key=lambda piece: piece.start_ns - piece.end_ns)[:MOST_PIECES]
    return sorted(kept, key=lambda piece: piece.start_ns)


def _slices(pieces: Sequence[Piece], start: int, end: int) -> tuple[Piece, ...]:
    """Return equal slices of a step, each with the state and the phase that take most of it."""
    edges = np.linspace(start, end, SLICES + 1).astype(np.int64)
    times = np.array([start, *(piece.end_ns for piece in pieces)])
    lengths = np.array([piece.end_ns - piece.start_ns for piece in pieces])
    names = list(dict.fromkeys((piece.state, piece.phase) for piece in pieces))
    kinds = np.array([names.index((piece.state, piece.phase)) for piece in pieces])
    sums = [np.append(0, np.cumsum(np.where(kinds == place, lengths, 0))) for place in range(len(names))]
    most = np.argmax([np.diff(np.interp(edges, times, each)) for each in sums], axis=0).tolist()
    bounds = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return tuple(Piece(names[kind][1], names[kind][0], *bound) for kind, bound in zip(most, bounds, strict=True))


def _sums(pieces: list[Piece]) -> dict[tuple[str, str], int]:
    """Return the time of all pieces by state and phase."""
    found = Counter[tuple[str, str]]()
    for piece in pieces:
        found[piece.state, piece.phase] += piece.end_ns - piece.start_ns
    return dict(found)


def _device_lanes(recording: Recording, window: Window, start: int, end: int) -> Iterator[Lane]:
    rows = recording.of_device(window.table("kernel"))
    rows = rows[(rows["start_ns"] < end) & (rows["end_ns"] > start)]
    tree = SpanTree(window.table("span"))
    for stream in np.unique(rows["stream"])[:MOST_LANES].tolist():
        mine = np.sort(rows[rows["stream"] == stream], order="start_ns")
        span = tree.index(mine["span"])
        bars = _bars(recording, tree, mine, span, (start, end))
        yield Lane(f"{recording.run.device} stream {stream}", tuple(bars), len(mine))


def _host_lanes(recording: Recording, window: Window, start: int, end: int) -> Iterator[Lane]:
    tree = SpanTree(window.table("span"))
    rows = tree.rows
    inside = (rows["kind"] == SpanKind.OPERATOR) & (rows["start_ns"] < end) & (rows["end_ns"] > start)
    found = np.flatnonzero(inside).astype(np.int32)
    threads, sizes = np.unique(rows["thread"][found], return_counts=True)
    for number, thread in enumerate(threads[np.argsort(-sizes, kind="stable")][:MOST_LANES].tolist(), 1):
        mine = found[rows["thread"][found] == thread]
        mine = mine[np.lexsort((-rows["end_ns"][mine], rows["start_ns"][mine]))]
        outer = mine[_outermost(rows["start_ns"][mine], rows["end_ns"][mine])]
        bars = _bars(recording, tree, rows[outer], outer, (start, end))
        yield Lane(f"host thread {number}", tuple(bars), len(outer))


def _outermost(start: Ints, end: Ints) -> Bools:
    """Return which of some intervals, ordered by start, lie in no earlier one."""
    before = np.maximum.accumulate(end)[:-1]
    return np.append(True, start[1:] >= before) if len(start) else np.zeros(0, bool)


def _alone(start: Ints, end: Ints, bounds: tuple[int, int]) -> Bools:
    """Return which intervals are drawn by themselves: the longest, and the longest of each part of the step."""
    found = np.zeros(len(start), bool)
    longest = np.argsort(start - end, kind="stable")
    found[longest[:MOST_BARS]] = True
    part = (start - bounds[0]) * MOST_BARS // max(bounds[1] - bounds[0], 1)
    _, first = np.unique(part[longest], return_index=True)
    found[longest[first]] = True
    return found


def _bars(recording: Recording, tree: SpanTree, rows: Table, span: Rows, bounds: tuple[int, int]) -> Iterator[Bar]:
    """Yield the bars of a lane, cut at the ends of the step; `span` is each row's place in the tree, -1 if none."""
    start, end = (np.clip(rows[name], *bounds) for name in ("start_ns", "end_ns"))
    phase, layer = tree.phase(span), tree.name(tree.layer(span))
    alone = _alone(start, end, bounds)
    run = np.cumsum(alone | np.append(False, alone[:-1])) if len(rows) else np.zeros(0, np.int64)
    begins = np.flatnonzero(np.diff(run, prepend=-1))
    lasts = np.append(begins[1:], len(run)) - 1
    length = np.append(0, np.cumsum(end - start))
    for a, b in zip(begins.tolist(), lasts.tolist(), strict=True):
        upto = int(end[a : b + 1].max())
        if a == b:
            where = recording.strings[int(layer[a])] if layer[a] >= 0 else None
            name = recording.strings[int(rows["name"][a])]
            yield Bar(name, where, Phase(int(phase[a])).name.lower(), int(start[a]), upto)
        else:
            together = int(length[b + 1] - length[a])
            yield Bar("", None, "outside", int(start[a]), upto, b - a + 1, together)
