"""Put a memory window's trace into one order and write it as the tables of `tbdprof.facts.records`."""

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tbdprof.facts.keys import ReasonFor, RemarkOn
from tbdprof.facts.records import AllocationKind, Phase, Role, Strings
from tbdprof.facts.rows import AllocationRow, OwnerRow, Table, table
from tbdprof.hooks.on_tensorflow.memory.existing import Block, existing, held
from tbdprof.hooks.on_tensorflow.memory.operator_lookup import Meanings
from tbdprof.hooks.on_tensorflow.memory.owner_places import Placing
from tbdprof.hooks.on_tensorflow.memory.snapshot import Snapshot
from tbdprof.hooks.on_tensorflow.memory.spans import Spans
from tbdprof.hooks.on_tensorflow.operators import eager
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.operators.runs import Runs
from tbdprof.hooks.on_tensorflow.session.events import ERRORS, READ, STEP, MarkEvent, MemoryEvent, Trace
from tbdprof.hooks.on_tensorflow.watch.owners import Owned, device_text
from tbdprof.hooks.on_tensorflow.watch.variables import Named

BEGIN = "memory"
LOADED = "tf.data"  # owner of a batch while it is loaded
NEVER = 1 << 62  # later than anything in the order
SMALLEST_REPORTED = 256 << 10  # smallest block that TensorFlow's default CPU allocator reports
PLAIN = "mklcpu"
EARLIER = 'run with `tbdprof run`, or `tbdprof.prepare("tensorflow")` comes before TensorFlow is imported'
_LARGE_ONLY = "TensorFlow began with an allocator that reports only CPU blocks of 256 KiB or more"
_UNKNOWN = "of {} executions of {} operators the phase was taken from their names ({}, …)"


@dataclass(slots=True)
class Recorded:
    """What a window recorded."""

    device: str
    followed: Mapping[str, Mapping[int, Block]]
    named: Sequence[Named]
    outside: Collection[int]  # addresses of tensors that are not in the allocator's memory
    asked: Sequence[eager.Asked] = ()  # since the marker `BEGIN`, on its thread
    seen: Mapping[int, Owned] = field(default_factory=dict)
    total_bytes: int | None = None
    held: Snapshot | None = None  # what the allocator held at the marker `BEGIN`, None if it has no dump
    trace: Trace = field(default_factory=Trace)
    reads: Sequence[Sequence[Owned]] = ()
    end_ns: int = 0


def build(recorded: Recorded, graphs: Graphs, strings: Strings) -> tuple[dict[str, Table], list[int], dict[str, str]]:
    """Return a window's tables, the sequence number at the end of each step, and what the tables lack."""
    trace = recorded.trace
    missing: dict[str, str] = {}
    asked = eager.of_events(trace, BEGIN, recorded.asked, missing)
    meanings = Meanings(graphs, Runs(trace, graphs), asked)
    spans = Spans(trace, meanings, strings, recorded.end_ns)
    rows = _Rows(recorded, spans, strings)
    rows.exist()
    marks = []
    for sequence, event in spans.order:
        if isinstance(event, MemoryEvent):
            rows.happen(sequence, event)
        elif isinstance(event, MarkEvent):
            rows.read(sequence, event)
            marks += [sequence] if event.name == STEP else []
    rows.finish()
    tables = {
        "span": table("span", spans.rows(rows.address_of)),
        "allocation": table("allocation", rows.allocations),
        "owner": table("owner", rows.owners),
    }
    return tables, marks, missing | _missing(trace, meanings)


class _Rows:
    """Builds the rows of allocations and owners."""

    def __init__(self, recorded: Recorded, spans: Spans, strings: Strings) -> None:
        self.allocations: list[AllocationRow] = []
        self.owners: list[OwnerRow] = []
        self._recorded, self._spans, self._strings = recorded, spans, strings
        self._parameters = {each.path: each for each in recorded.named}
        self._placing = Placing(spans.order, recorded.reads)
        self._addresses: dict[str, list[tuple[int, int]]] = {}  # of weights by name, each with the place of its reading
        # By run and path: gradients whose memory an operator reported. By sequence number: the blocks of summands.
        self._full: set[tuple[int, str]] = set()
        self._summands: dict[int, tuple[int, str]] = {}

    def exist(self) -> None:
        """Enter what existed before the window."""
        events = [event for event in self._recorded.trace.memory if device_of(event.allocator) == self._recorded.device]
        names = [event.allocator for event in events]
        followed = self._recorded.followed.get(names[0], {}) if names else {}
        for block, is_tensor in self._before(events, names, followed):
            if not block.is_tensor:  # nothing but TensorFlow itself is known to hold it
                device, size = self._recorded.device, block.requested_bytes
                self._own(0, Owned(Role.UNKNOWN, "", device, block.address, size, block.shape))
            self.allocations.append(
                AllocationRow(
                    sequence=0,
                    kind=AllocationKind.EXISTING,
                    device=self._strings.add(self._recorded.device),
                    thread=-1,
                    address=block.address,
                    requested_bytes=block.requested_bytes,
                    allocated_bytes=block.allocated_bytes,
                    time_ns=0,
                    was_tensor=1 if is_tensor else -1,
                    shape=self._shape(block.shape),
                )
            )

    def _before(
        self, events: Sequence[MemoryEvent], names: Sequence[str], followed: Mapping[int, Block]
    ) -> list[tuple[Block, bool]]:
        """Return the blocks that existed before all events, and whether each is a tensor."""
        whole = self._recorded.held
        if whole is None or whole.allocator not in names:
            total_bytes = _total_before(events[0]) if events else self._recorded.total_bytes
            blocks = existing(events, followed, self._visible(names), total_bytes)
            return [(block, block.is_tensor) for block in blocks]
        # All work was waited for, so none of them is an operator's workspace.
        return [(block, True) for block in held(events, followed, self._visible(names), whole.blocks)]

    def happen(self, sequence: int, event: MemoryEvent) -> None:
        """Enter an allocation or a free, and its owner if the operator shows it."""
        self.allocations.append(
            AllocationRow(
                sequence=sequence,
                kind=event.kind,
                device=self._strings.add(device_of(event.allocator)),
                thread=event.thread,
                address=event.address,
                requested_bytes=event.requested_bytes,
                allocated_bytes=event.allocated_bytes,
                time_ns=event.time_ns,
                span=self._spans.innermost(event),
                was_tensor=1 if event.region != "temp" and event.dtype else -1,
                shape=self._shape(event.shape),
                total_bytes=event.total_bytes,
            )
        )
        if event.kind == AllocationKind.ALLOCATED:
            self._own_by_operator(sequence, event)

    def read(self, sequence: int, mark: MarkEvent) -> None:
        """Enter the owners read at a marker."""
        if mark.name.startswith(READ):
            for place, row in self._placing.of(int(mark.name.removeprefix(READ)), sequence):
                self._own(place, row)
                if row.role == Role.WEIGHT:
                    self._addresses.setdefault(row.name, []).append((sequence, row.address))

    def address_of(self, path: str, sequence: int) -> int:
        """Return where a variable lay when owners were last read before a place in the order, or 0."""
        name = self._parameters[path].name if path in self._parameters else ""
        read = self._addresses.get(name, [])
        place = bisect_left(read, (sequence, 0)) - 1
        return read[place][1] if place >= 0 else 0

    def finish(self) -> None:
        """Enter what follows only from all events together."""
        self._own_sums()

    def _own_sums(self) -> None:
        """Enter gradients that are summed in a summand's memory: that summand is the one freed last."""
        ends, last = dict[int, int](), dict[tuple[int, str], tuple[int, int, MemoryEvent]]()
        for sequence, event in reversed(self._spans.order):
            if not isinstance(event, MemoryEvent):
                continue
            if event.kind == AllocationKind.FREED:
                ends[event.address] = sequence
            elif (key := self._summands.get(sequence)) is not None and key not in self._full:
                end = ends.pop(event.address, NEVER)
                if key not in last or end > last[key][0]:
                    last[key] = (end, sequence, event)
            else:
                ends.pop(event.address, None)
        for (_, path), (_, sequence, event) in last.items():
            self._own_gradient(sequence, event, self._parameters[path])

    def _visible(self, allocators: Sequence[str]) -> Mapping[int, Owned]:
        """Return what Python saw of the allocator's blocks; the plain allocator does not report small ones."""
        least = SMALLEST_REPORTED if PLAIN in allocators else 0
        seen = self._recorded.seen.items()
        return {key: row for key, row in seen if row.bytes >= least and key not in self._recorded.outside}

    def _own_by_operator(self, sequence: int, event: MemoryEvent) -> None:
        if self._spans.phase(event) is Phase.DATA:
            self._own(sequence, self._owned(event, Role.INPUT, LOADED, event.shape))
        node = self._spans.node(event)
        if node is None or not event.node:  # an operator's workspace has no name
            return
        for path in node.gradients:
            if self._fits(path, event):
                self._full.add((event.step, path))
                self._own_gradient(sequence, event, self._parameters[path])
                return
        if node.adds_to is not None and self._fits(node.adds_to, event):
            self._summands[sequence] = (event.step, node.adds_to)

    def _fits(self, path: str, event: MemoryEvent) -> bool:
        return path in self._parameters and event.requested_bytes == _bytes(self._parameters[path])

    def _own_gradient(self, sequence: int, event: MemoryEvent, parameter: Named) -> None:
        shape = json.dumps(parameter.variable.shape.as_list())
        self._own(sequence, self._owned(event, Role.GRADIENT, parameter.name, shape))

    def _owned(self, event: MemoryEvent, role: Role, name: str, shape: str) -> Owned:
        return Owned(role, name, device_of(event.allocator), event.address, event.requested_bytes, shape)

    def _own(self, sequence: int, row: Owned) -> None:
        text = self._strings.add
        # Right after the allocation: an owner belongs to a block that began before it.
        place, name, shape = text(row.device), text(row.name), text(row.shape)
        self.owners.append(OwnerRow(sequence + 1, place, row.address, row.bytes, row.role, name, shape))

    def _shape(self, text: str) -> int:
        return self._strings.add(text) if text else -1


def device_of(allocator: str) -> str:
    """Return the device of an allocator: "cpu", "cuda:N", or the allocator's own name."""
    if "cpu" in allocator:
        return "cpu"
    kind, _, rest = allocator.partition("_")
    return device_text(f"device:GPU:{rest.partition('_')[0]}") if kind == "GPU" else allocator


def _total_before(first: MemoryEvent) -> int:
    allocated = first.kind == AllocationKind.ALLOCATED
    return first.total_bytes + (-first.allocated_bytes if allocated else first.allocated_bytes)


def _bytes(parameter: Named) -> int:
    return int(parameter.variable.dtype.size * parameter.variable.shape.num_elements())


def _missing(trace: Trace, meanings: Meanings) -> dict[str, str]:
    missing: dict[str, str] = {}
    if any(event.allocator == PLAIN for event in trace.memory):
        missing[RemarkOn.ALLOCATIONS] = _LARGE_ONLY
    if not trace.memory:
        missing[ReasonFor.MEMORY] = f"no block was reported: {_LARGE_ONLY}, unless it is {EARLIER}"
    if trace.errors:
        missing[RemarkOn.TRACE] = ERRORS.format(len(trace.errors))
    if meanings.unknown:
        often = [name for name, _ in Counter(meanings.unknown).most_common(3)]
        reason = _UNKNOWN.format(sum(meanings.unknown.values()), len(meanings.unknown), ", ".join(often))
        missing[RemarkOn.OPERATORS] = reason
    return missing
