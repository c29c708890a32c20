"""Which operator of the forward pass each operator of a backward pass is the gradient of, by what they read and write.

A variable of the engine holds the value its last writer put there. What a gradient reads from the forward pass was read
or written by the operator it is the gradient of; what it writes are gradients of what that operator read. Where more
than one operator fits, none is named.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from tbdprof.hooks.on_mxnet.engine import Push

Value = tuple[int, int]  # the number of its last writer (-1: before the window), the variable

_BACKWARD = "_backward_"
_PASSING = frozenset({"elemwise_add", "broadcast_add", "_copy", "identity", "Reshape", "Flatten", "expand_dims"})
# Operators of a backward pass that are the gradient of nothing: sums of gradients, and what MXNet does for itself.
_OWN = frozenset({"add_n", "_grad_add", "ElementWiseSum", "_zeros_without_dtype", "_zeros", "_ones", "_full"})
LIBRARY = frozenset({"DeleteVariable", "SetValueOp", "WaitForVar", "CopyCPU2CPU", "CopyCPU2GPU", "CopyGPU2CPU"})


def sources(
    pushes: Sequence[Push],
    is_backward: Callable[[Push], bool],
    may_be_source: Callable[[Push], bool],
    same: Callable[[Push, Push], bool],
) -> dict[int, int]:
    """Return, for operators of backward passes, the number of the one each is the gradient of.

    `same` tells of two candidates that it makes no difference which one it is.
    """
    # A work space is written again and again, and never only read.
    read = {variable for push in pushes for variable in push.reads}
    flow, found, used = _Flow(), dict[int, int](), set[int]()
    for asked in pushes:
        push = asked._replace(writes=tuple(variable for variable in asked.writes if variable in read))
        if is_backward(push):
            source = _choose(push, flow.candidates(push), same, used)
            if source is not None:
                found[push.number] = source.number
                used.add(source.number)
            flow.backward(push, source)
        else:
            flow.forward(push, is_source=may_be_source(push))
    return found


class _Flow:
    """Where values came from and went to, up to some place of the order."""

    def __init__(self) -> None:
        self._writer: dict[int, int] = {}  # by variable
        self._backward_writers: set[int] = set()
        self._touching: dict[Value, list[Push]] = defaultdict(list)  # forward operators that read or wrote a value
        self._made: dict[Value, Push] = {}
        self._read: dict[int, list[Value]] = {}  # by number
        self._gradient_of: dict[Value, set[Value]] = {}

    def forward(self, push: Push, *, is_source: bool) -> None:
        """Let any other operator read and write."""
        # What is written in place was read, too.
        read = [self._value(variable) for variable in (*push.reads, *push.writes)]
        self._write(push)
        written = [self._value(variable) for variable in push.writes]
        if is_source:
            self._read[push.number] = read
            for value in {*read, *written}:
                self._touching[value].append(push)
            self._made.update((value, push) for value in written)

    def candidates(self, push: Push) -> list[Push]:
        """Return the operators a gradient may belong to."""
        values = [self._value(variable) for variable in push.reads]
        # A gradient that the script gives was not seen before.
        kept = [value for value in values if value[0] not in self._backward_writers and value in self._touching]
        if kept:
            lists = [self._touching[value] for value in kept]
            common = set.intersection(*({each.number for each in one} for one in lists))
            return [each for each in lists[0] if each.number in common]
        gradients = [*values, *(self._value(variable) for variable in push.writes)]
        meant = {meant for value in gradients for meant in self._gradient_of.get(value, ())}
        return [self._made[value] for value in self._through(meant) if value in self._made]

    def backward(self, push: Push, source: Push | None) -> None:
        """Let a gradient, whose source is known or not, read and write."""
        values = [self._value(variable) for variable in (*push.reads, *push.writes)]
        passed = [self._gradient_of[value] for value in values if value in self._gradient_of]
        meant = set(self._read[source.number]) if source else set.intersection(*passed) if passed else set()
        self._write(push)
        self._backward_writers.add(push.number)
        for variable in push.writes:
            self._gradient_of[self._value(variable)] = meant

    def _through(self, values: Iterable[Value]) -> list[Value]:
        """Return values and those that only had to be passed on to become them."""
        seen, pending = list[Value](), list(values)
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.append(value)
            made = self._made.get(value)
            if made is not None and made.name in _PASSING:
                pending += self._read[made.number]
        return seen

    def _value(self, variable: int) -> Value:
        return self._writer.get(variable, -1), variable

    def _write(self, push: Push) -> None:
        self._writer.update((variable, push.number) for variable in push.writes)


def _choose(push: Push, candidates: Sequence[Push], same: Callable[[Push, Push], bool], used: set[int]) -> Push | None:
    if push.name in _OWN | LIBRARY:
        return None
    named = [each for each in candidates if is_named_for(push.name, each.name)]
    fitting = [each for each in named if each.number not in used] or named
    if not fitting and not push.name.startswith(_BACKWARD):
        fitting = list(candidates)  # a gradient made of ordinary operators
    if not fitting or not all(same(fitting[-1], each) for each in fitting):
        return None
    return max(fitting, key=lambda each: each.number)


def is_named_for(backward: str, forward: str) -> bool:
    """Tell whether one operator is the gradient of another, which is of the same kind, as for a batched product."""
    return backward == forward or is_gradient(backward, forward)


def is_gradient(backward: str, forward: str) -> bool:
    """Tell by their names whether one operator is the gradient of another."""
    name = backward.removeprefix(_BACKWARD)
    return name != backward and name in (forward, forward.lstrip("_"), forward.removeprefix("_contrib_"))
