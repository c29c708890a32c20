"""A window's spans as a tree, climbed for many blocks or kernels at once, and the one rule for layers.

There may be a million of them, so what climbs takes `PIECE` at a time: only its result is as long as they are.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tbdprof.facts.arrays import Bools, Ints, Rows
from tbdprof.facts.records import Operation, Phase, SpanKind
from tbdprof.facts.rows import SpanRow, Table, table

# Stands in for the spans of a window without any; no id refers to it.
_NOWHERE = SpanRow(
    -2, -1, SpanKind.PHASE, Phase.OUTSIDE, Operation.OTHER, -1, -1, 0, 0, first_sequence=0, last_sequence=0
)
_NO_SPAN = table("span", [_NOWHERE])


PIECE = 1 << 16


class SpanTree:
    """The spans in the order of their ids; a row number means a span, -1 means none."""

    def __init__(self, spans: Table) -> None:
        rows = spans if len(spans) else _NO_SPAN
        ordered = bool((np.diff(rows["id"]) > 0).all())
        self.rows = rows if ordered else rows[np.argsort(rows["id"], kind="stable")]
        self._parent = self.index(self.rows["parent"])

    def index(self, ids: Ints) -> Rows:
        """Return the row of each span id, or -1 if there is none."""
        known = np.ascontiguousarray(self.rows["id"])

        def index(ids: Ints) -> Ints:
            place = np.minimum(np.searchsorted(known, ids), len(known) - 1)
            return np.where(known[place] == ids, place, -1)

        return _in_pieces(index, ids)

    def above(self, rows: Rows) -> Rows:
        """Return the row that encloses each row, or -1 if there is none."""
        return np.where(rows >= 0, self._parent[rows], np.int32(-1))

    def nearest(self, rows: Rows, wanted: Bools, inside: Ints | None = None, thread: Ints | None = None) -> Rows:
        """Return the innermost enclosing row (itself included) that is wanted, or -1 if there is none.

        With `inside` and `thread`, the row must also contain that sequence number on that thread.
        """
        if inside is None or thread is None:
            return _in_pieces(lambda piece: self._nearest(piece, wanted), rows)
        begins, ends, threads = (self.rows[name] for name in ("first_sequence", "last_sequence", "thread"))

        def contains(current: Rows, inside: Ints, thread: Ints) -> Bools:
            found: Bools = (begins[current] < inside) & (inside < ends[current]) & (threads[current] == thread)
            return found

        return _in_pieces(
            lambda piece, inside, thread: self._nearest(
                piece, wanted, lambda current, walking: contains(current, inside[walking], thread[walking])
            ),
            *(rows, inside, thread),
        )

    def _nearest(self, rows: Rows, wanted: Bools, fits: Callable[[Rows, Ints], Bools] | None = None) -> Rows:
        found = np.full(len(rows), -1, np.int32)
        walking = np.flatnonzero(rows >= 0)
        current = rows[walking]
        while len(walking):
            hit = wanted[current]
            if fits is not None:
                hit &= fits(current, walking)
            found[walking[hit]] = current[hit]
            walking, current = self._climb(walking[~hit], current[~hit])
        return found

    def open_at(self, time_ns: Ints, thread: Ints) -> Rows:
        """Return the innermost row open on a thread at each time, or -1; the last of several that begin together.

        A span is open from its start until just before its end. Spans of one thread nest.
        """
        found = np.full(len(time_ns), -1, np.int32)
        for each in np.unique(thread):
            asking = np.flatnonzero(thread == each)
            rows = np.flatnonzero(self.rows["thread"] == each)
            rows = rows[np.argsort(self.rows["start_ns"][rows], kind="stable")]
            before = np.searchsorted(self.rows["start_ns"][rows], time_ns[asking], side="right")
            found[asking] = np.where(before > 0, np.append(rows, -1)[before - 1], -1)
        return self._still_open(found, time_ns)

    def _still_open(self, begun: Rows, time_ns: Ints) -> Rows:
        """Return each row or its nearest enclosing row that has not ended by a time, or -1 if all have ended."""
        found, ends = begun.copy(), self.rows["end_ns"]
        ended = np.flatnonzero((found >= 0) & (ends[found] <= time_ns))
        while len(ended):
            found[ended] = self._parent[found[ended]]
            ended = ended[(found[ended] >= 0) & (ends[found[ended]] <= time_ns[ended])]
        return found

    def topmost(self, rows: Rows, wanted: Bools) -> Rows:
        """Return the outermost enclosing row (itself included) that is wanted, whatever lies between, or -1."""
        return _in_pieces(lambda piece: self._topmost(piece, wanted), rows)

    def _topmost(self, rows: Rows, wanted: Bools) -> Rows:
        found = np.full(len(rows), -1, np.int32)
        walking = np.flatnonzero(rows >= 0)
        current = rows[walking]
        while len(walking):
            hit = wanted[current]
            found[walking[hit]] = current[hit]
            walking, current = self._climb(walking, current)
        return found

    def outermost(self, rows: Rows, kind: SpanKind) -> Rows:
        """Return the outermost row of a kind that each row reaches without leaving that kind, or -1."""
        wanted = self.rows["kind"] == kind
        return _in_pieces(lambda piece: self._outermost(piece, wanted), rows)

    def _outermost(self, rows: Rows, wanted: Bools) -> Rows:
        found = self._nearest(rows, wanted)
        walking = np.flatnonzero(found >= 0)
        current = found[walking]
        while len(walking):
            found[walking] = current
            walking, current = self._climb(walking, current)
            stays = wanted[current]
            walking, current = walking[stays], current[stays]
        return found

    def any_above(self, rows: Rows, wanted: Bools) -> Bools:
        """Return whether each row or an enclosing row is wanted."""
        return self.nearest(rows, wanted) >= 0

    def phase(self, rows: Rows) -> NDArray[np.uint8]:
        """Return the phase of each row, OUTSIDE for -1."""
        return np.where(rows >= 0, self.rows["phase"][rows], np.uint8(Phase.OUTSIDE))

    def name(self, rows: Rows) -> NDArray[np.int32]:
        """Return the text index of each row's name, -1 for -1."""
        return np.where(rows >= 0, self.rows["name"][rows], np.int32(-1))

    def layer(self, rows: Rows) -> Rows:
        """Return the layer span that each row belongs to, or -1 if there is none.

        It is the nearest enclosing layer. Without one, a row in backward belongs to the layer of the forward operator
        with the same number. If several operators have that number, the last to begin counts: a framework gives an
        operator without a gradient the number of the next operator with one.
        """
        layers = self.rows["kind"] == SpanKind.LAYER
        found = self.nearest(rows, layers)
        lost = np.flatnonzero((found < 0) & (rows >= 0))
        found[lost] = self.nearest(self._forward_of(rows[lost]), layers)
        return found

    def _forward_of(self, rows: Rows) -> Rows:
        """Return, for each row in backward, the operator outside backward with the same number, or -1."""
        numbered = self.rows["forward"] >= 0
        source = self.nearest(rows, numbered)
        asks = (source >= 0) & (self.phase(source) == Phase.BACKWARD)
        made = np.flatnonzero(numbered & (self.rows["phase"] != Phase.BACKWARD))
        if not len(made) or not asks.any():
            return np.full(len(rows), -1, np.int32)
        made = made[np.argsort(self.rows["forward"][made], kind="stable")]
        numbers, wanted = self.rows["forward"][made], self.rows["forward"][source]
        place = np.searchsorted(numbers, wanted, side="right") - 1
        return np.where(asks & (place >= 0) & (numbers[place] == wanted), made[place], -1).astype(np.int32)

    def _climb(self, walking: Ints, current: Rows) -> tuple[Ints, Rows]:
        above = self._parent[current]
        goes_on = above >= 0
        return walking[goes_on], above[goes_on]


def _in_pieces(found: Callable[..., Ints | Rows], *columns: Ints | Rows) -> Rows:
    """Return what a function finds for each row of some columns, which it is given some rows at a time."""
    size = len(columns[0])
    rows = np.empty(size, np.int32)
    for start in range(0, size, PIECE):
        piece = slice(start, start + PIECE)
        rows[piece] = found(*(column[piece] for column in columns))
    return rows
