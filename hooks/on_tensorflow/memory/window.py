"""A memory window: every allocation that TensorFlow reports, the operator around it, and owners read at markers."""

import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack

from tbdprof.errors import UnavailableError
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained
from tbdprof.hooks.levels import Levels, samples
from tbdprof.hooks.on_tensorflow.memory import allocator, snapshot
from tbdprof.hooks.on_tensorflow.memory.existing import Block
from tbdprof.hooks.on_tensorflow.memory.table import BEGIN, Recorded, build
from tbdprof.hooks.on_tensorflow.operators import eager
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.session.session import Session
from tbdprof.hooks.on_tensorflow.watch import owners
from tbdprof.hooks.on_tensorflow.watch.watch import Watch
from tbdprof.hooks.threads import are_others


class MemoryWindow:
    """Follows memory from its construction until `stop`, including what exists at its start.

    Raise UnavailableError if another profiler is active. `followed` is what is known since the first allocation, by
    allocator and address. `outside` are addresses of memory that is not the allocator's.
    """

    def __init__(
        self,
        watch: Watch,
        graphs: Graphs,
        device: str,
        followed: Mapping[str, Mapping[int, Block]],
        outside: Collection[int],
    ) -> None:
        self._watch, self._graphs = watch, graphs
        watch.look()
        self._recorded = Recorded(device, followed, watch.watched.variables(), outside)
        self._missing: dict[str, str] = {}
        self._is_done = False
        self._left: tuple[int, Levels] = (0, {})  # what the allocator held at the end, and when
        self._session = Session()
        # Before the session starts: what Python sees now existed before all events.
        self._recorded.seen = owners.visible(device)
        self._session.start()
        self._is_open = True
        self._log = eager.Log(graphs.tracing, self._session.mark)
        try:
            self._session.mark(BEGIN)
            self._recorded.total_bytes = allocator.allocated_bytes(device)
            if followed or device != "cpu":  # the CPU's allocator may be one that does not report small blocks
                whole = self._recorded.held = snapshot.take(device)
            # Giving a variable a new buffer would undo an update that another thread makes meanwhile.
            if followed and not are_others():
                known = [whole.blocks] if whole is not None else followed.values()
                owners.renew(watch.watched, {address for blocks in known for address in blocks})
            watch.open_window(self._session, reads_owners=True)
            watch.read_all()
        except BaseException:
            self.stop()
            raise

    def mark_step(self) -> None:
        """Read all owners at the end of a step, when all its work is done, and set a step marker."""
        self._watch.read_all()
        self._watch.mark_step()
        self._log.step()

    def stop(self) -> None:
        """Restore TensorFlow's functions and end the session; do nothing the second time."""
        if not self._is_open:
            return
        self._is_open = False
        self._recorded.reads = self._watch.reads()
        self._recorded.named = self._watch.watched.variables()
        self._recorded.asked = self._log.asked
        with ExitStack() as last:
            last.callback(self._end)
            last.callback(self._log.close)
            last.callback(self._watch.close_window)
            self._left = time.monotonic_ns(), allocator.levels(self._recorded.device)

    def drain(self, strings: Strings) -> Drained:
        """Return allocations, owners and spans."""
        if not self._is_done:
            return Drained({}, [], self._missing)
        tables, marks, missing = build(self._recorded, self._graphs, strings)
        if self._left[1]:
            tables["sample"] = samples([self._left], self._recorded.device, strings)
        return Drained(tables, marks, self._missing | missing)

    def _end(self) -> None:
        try:
            self._recorded.trace = self._session.stop()
            self._recorded.end_ns = time.monotonic_ns()
            self._is_done = True
        except UnavailableError as error:
            self._missing[ReasonFor.MEMORY] = str(error)
