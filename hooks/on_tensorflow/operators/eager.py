"""Log Python's calls of operators in eager mode, and match them to the events of a trace.

After each operator TensorFlow calls a callback with its attributes and tensors. The trace holds the same operators on
the thread's line in the same order, by type only. The two are joined by that order, without comparing clocks.

The replicas of a distribution strategy run in threads of their own, one at a time. TensorFlow gives the callback to
them, too.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorflow.python.framework import op_callbacks

from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import Operation, Phase
from tbdprof.hooks.naming import around
from tbdprof.hooks.on_tensorflow.operators.kinds import kind, operation
from tbdprof.hooks.on_tensorflow.operators.node import UNKNOWN, Node
from tbdprof.hooks.on_tensorflow.session.events import FUNCTIONS, OpEvent, Trace
from tbdprof.hooks.on_tensorflow.watch.tracing import Here, Tracing
from tbdprof.hooks.waiting import waits

_REPLICA = "replica "  # prefix of the markers on replicas' threads
_DIFFERENT = "{} of {} operators of eager mode could not be distinguished by their order: they are in no layer"

TensorFacts = tuple[int, tuple[int, ...] | None, int]  # a tensor's number, shape and data type


@dataclass(slots=True)
class Asked:
    """An operator or a traced function that Python called; of a function, nothing is kept of what it took and made."""

    type: str
    phase: Phase
    layer: str | None
    inputs: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]
    attributes: tuple[Any, ...]  # names and values alternate
    reads: bool  # its first input is the value of a variable
    thread: int = 0  # Python's number of a replica's thread, 0 for the thread of the log


@dataclass(slots=True)
class Log:
    """Logs the calls of one thread, and of replicas that run for it, from its construction until `close`.

    Of tensors it keeps only numbers and shapes.
    """

    tracing: Tracing
    mark: Callable[[str], None]  # sets a marker in the trace, on the thread that calls it
    asked: list[Asked] = field(default_factory=list)
    _thread: int = field(default_factory=threading.get_ident)
    _marked: set[int] = field(default_factory=set)  # threads of replicas
    _replica: Here | None = None  # the phase and layer of the replica that ran last
    _made: dict[int, int] = field(default_factory=dict)  # tensor's number -> the call that returned it
    _taken: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # the calls that took it

    def __post_init__(self) -> None:
        op_callbacks.add_op_callback(self._keep)
        self.tracing.open_window(self._gradient_of)

    def close(self) -> None:
        """Stop logging."""
        self.tracing.close_window()
        op_callbacks.remove_op_callback(self._keep)

    def step(self) -> None:
        """Forget which call returned which tensor: no gradient reaches beyond the end of a step."""
        self._replica = None
        self._made.clear()
        self._taken.clear()

    @waits
    def _keep(
        self, op_type: Any, inputs: Any, attributes: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        name = op_type.decode() if isinstance(op_type, bytes) else str(op_type)
        if graph is not None:
            return
        if name.startswith(FUNCTIONS):  # it may take hundreds of variables
            inputs, attributes, outputs = (), (), ()
        thread, place = self._replicas_thread(), len(self.asked)
        here = self._here(thread)
        taken = tuple(map(_facts_of, inputs))
        made = tuple(map(_facts_of, outputs if isinstance(outputs, list | tuple) else [outputs]))
        layer = self._summed(taken) if name == "AddN" and here.layer is None else here.layer
        reads = bool(taken) and taken[0][0] in self._made and self.asked[self._made[taken[0][0]]].type == _READ
        self.asked.append(Asked(name, here.phase, layer, taken, made, tuple(attributes), reads, thread))
        self._made.update((number, place) for number, _, _ in made)
        for number, _, _ in taken:
            self._taken[number].append(place)

    def _replicas_thread(self) -> int:
        """Return the number of this thread as in `Asked`; the first time, mark the thread in the trace."""
        thread = threading.get_ident()
        if thread == self._thread:
            return 0
        if thread not in self._marked:
            self._marked.add(thread)
            self.mark(f"{_REPLICA}{thread}")
        return thread

    def _here(self, thread: int) -> Here:
        """Return this thread's phase and layer; while replicas wait for an update, the first thread makes it."""
        here = self.tracing.here
        if thread:
            self._replica = here
        elif here.phase is Phase.OUTSIDE and self._replica is not None and self._replica.phase is Phase.UPDATE:
            return self._replica
        return here

    def _gradient_of(self, op_name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> str | None:
        """Return the layer that a gradient belongs to, as far as its tensors are known."""
        for tensor in outputs:
            if _number(tensor) in self._made:
                return self.asked[self._made[_number(tensor)]].layer
        takers = [self._taken.get(_number(tensor), []) for tensor in inputs if tensor is not None]
        common = set.intersection(*map(set, takers)) if takers else set()
        found = [place for place in common if self.asked[place].type == op_name]
        return self.asked[max(found)].layer if found else None

    def _summed(self, taken: Sequence[TensorFacts]) -> str | None:
        """Return the layer around everything that a sum of gradients adds."""
        made = [self.asked[self._made[number]].layer for number, _, _ in taken if number in self._made]
        return around([layer for layer in made if layer is not None])


_READ = "ReadVariableOp"
NodeOf = Callable[[Asked, Phase], Node]


def node_of(asked: Asked, phase: Phase) -> Node:
    """Return phase, layer and kind of an operator that Python called."""
    inputs, outputs = ([shape for _, shape, _ in tensors] for tensors in (asked.inputs, asked.outputs))
    of_kind = kind(asked.type, inputs, outputs, reads_variable=asked.reads)
    return Node(phase, asked.layer or None, of_kind, source=asked.type)


def of_events(
    trace: Trace, mark: str, asked: Sequence[Asked], missing: dict[str, str], node_of: NodeOf = node_of
) -> dict[int, Node]:
    """Map the `id` of each event on the threads of a marker and of replicas to its node; this also fills `missing`.

    An operator that Python did not call, such as a variable read within another operator, belongs to the operator after
    it.
    """
    threads = {each.name: each.thread for each in trace.marks}
    calls: dict[int, list[Asked]] = {threads[mark]: []} if mark in threads else {}
    for each in asked:
        thread = threads.get(f"{_REPLICA}{each.thread}" if each.thread else mark)
        if thread is not None:
            calls.setdefault(thread, []).append(each)
    ran = defaultdict[int, list[OpEvent]](list)
    for op in trace.ops:
        if op.is_eager and op.thread in calls:
            ran[op.thread].append(op)
    found, lost = dict[int, Node](), 0
    for thread, mine in ran.items():
        nodes = _nodes(calls[thread], mine, node_of)
        lost += _lost(mine, nodes)
        found.update((id(op), node) for op, node in zip(mine, _filled(mine, nodes), strict=True))
    if lost:
        missing[RemarkOn.KERNEL_LAYERS] = _DIFFERENT.format(lost, len(found))
    return found


def _nodes(asked: Sequence[Asked], ran: Sequence[OpEvent], node_of: NodeOf) -> list[Node | None]:
    """Return the node of each of a thread's operators that ran, or None where the order does not say it."""
    places, happened = _places(asked), Counter(event.op for event in ran)
    phases = _phases(asked)
    found: list[Node | None] = []
    taken: Counter[str] = Counter()
    for event in ran:
        mine = places.get(event.op, ())
        place = mine[taken[event.op]] if len(mine) == happened[event.op] else -1
        taken[event.op] += 1
        found.append(node_of(asked[place], phases[place]) if place >= 0 else None)
    return found


def _lost(ran: Sequence[OpEvent], found: Sequence[Node | None]) -> int:
    """Return how many operators that compute have no node."""
    unknown = [event for event, node in zip(ran, found, strict=True) if node is None]
    return sum(operation(event.op) is not Operation.BOOKKEEPING for event in unknown)


def by_type(event: OpEvent) -> Node:
    """Return what an operator's type alone shows."""
    return Node(Phase.OUTSIDE, None, operation(event.op))


def _filled(ran: Sequence[OpEvent], found: Sequence[Node | None]) -> list[Node]:
    follows, filled = UNKNOWN, list[Node]()
    for event, node in zip(reversed(ran), reversed(found), strict=True):
        follows = node or follows
        filled.append(node or Node(follows.phase, follows.layer, operation(event.op)))
    return filled[::-1]


def _phases(asked: Sequence[Asked]) -> list[Phase]:
    """Return the phases; a call between a backward pass and the update after it belongs to the update."""
    phases, before = [each.phase for each in asked], Phase.OUTSIDE
    waiting: list[int] = []  # places since the backward pass
    for place, phase in enumerate(phases):
        if phase is Phase.OUTSIDE:
            waiting.append(place)
            continue
        if (before, phase) == (Phase.BACKWARD, Phase.UPDATE):
            for each in waiting:
                phases[each] = Phase.UPDATE
        waiting, before = [], phase
    return phases


def _places(asked: Sequence[Asked]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for place, each in enumerate(asked):
        found[each.type].append(place)
    return dict(found)


def _number(tensor: Any) -> int:
    return int(getattr(tensor, "_id", -1))


def _facts_of(tensor: Any) -> TensorFacts:
    # Use the fastest ways: this runs for every tensor of every operator while operators are timed.
    try:
        return tensor._id, tensor._shape_tuple(), tensor._datatype_enum()  # noqa: SLF001
    except AttributeError:
        return -1, None, 0
