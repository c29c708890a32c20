"""Find the forward operator that each gradient operator belongs to, from the values that both read and write.

That forward operator is called the source. A variable of MXNet's engine holds the value of its last writer. Every
forward value that a gradient operator reads was read or written by its source. The gradient operator also reads the
gradient of its source's result, and writes gradients of what its source read. If several operators fit, no source is
named.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from tbdprof.hooks.on_mxnet.session.engine import Push
from tbdprof.hooks.on_mxnet.session.graphs import ELIDED, FUSED

Value = tuple[int, int]  # the number of its last writer (-1: before the window), and the variable

_BACKWARD = "_backward_"
_PASSING = frozenset({"elemwise_add", "broadcast_add", "_copy", "identity", "Reshape", "Flatten", "expand_dims"})
# Operators in a backward pass without a source: sums of gradients, and MXNet's own operators.
_OWN = frozenset({"add_n", "_grad_add", "ElementWiseSum", "_zeros_without_dtype", "_zeros", "_ones", "_full"})
_DEVICES = ("CPU", "GPU")
# oneDNN changes the order of an array's numbers in place, and changes it back: the values stay the same.
_REORDERINGS = frozenset({"Reorder", "Reorder2Default"})
_DELETED = "DeleteVariable"
_HEAD = "SetValueOp"  # writes the ones that a backward pass begins with: the gradient of a result that no operator read
LIBRARY = frozenset({_DELETED, _HEAD, "WaitForVar"} | {f"Copy{one}2{other}" for one in _DEVICES for other in _DEVICES})


def sources(
    pushes: Sequence[Push],
    is_backward: Callable[[Push], bool],
    may_be_source: Callable[[Push], bool],
    same: Callable[[Push, Push], bool],
) -> dict[int, int]:
    """Map the number of each gradient operator to the number of its source.

    `same` returns whether it makes no difference which of two candidates is the source.
    """
    flow, found, used, workspaces = _Flow(), dict[int, int](), set[int](), _workspaces(pushes)
    for asked in pushes:
        if asked.name in _REORDERINGS:
            continue
        push = asked._replace(writes=tuple(variable for variable in asked.writes if variable not in workspaces))
        if is_backward(push):
            source = _choose(push, flow, same, used)
            if source is not None:
                found[push.number] = source.number
                used.add(source.number)
            flow.backward(push, source)
        else:
            flow.forward(push, is_source=may_be_source(push))
    return found


def _workspaces(pushes: Sequence[Push]) -> set[int]:
    """Return the variables of workspaces: operators write them in turn, none only reads them, and they are not deleted.

    The variable of a result that nothing reads, such as a loss, is deleted with it, or is written once.
    """
    written = Counter(variable for push in pushes if push.name != _DELETED for variable in push.writes)
    read = {variable for push in pushes for variable in push.reads}
    deleted = {variable for push in pushes if push.name == _DELETED for variable in push.writes}
    return {variable for variable, times in written.items() if times > 1} - read - deleted


class _Flow:
    """Records which operators wrote and read each value, up to a point in the order of requests."""

    def __init__(self) -> None:
        self._writer: dict[int, int] = {}  # last writer by variable
        self._backward_writers: set[int] = set()
        self._touching: dict[Value, list[Push]] = defaultdict(list)  # forward operators that read or wrote a value
        self._made: dict[Value, Push] = {}
        self._read: dict[int, list[Value]] = {}  # values by number of the operator that read them
        self._gradient_of: dict[Value, set[Value]] = {}
        self._passed_on: set[int] = set()  # operators with a result that another operator read

    def forward(self, push: Push, *, is_source: bool) -> None:
        """Record what an operator reads and writes that is not a gradient."""
        if push.name in ELIDED and not push.reads:  # in place: the value does not change
            return
        # What is written in place was also read.
        read = [self._value(variable) for variable in (*push.reads, *push.writes)]
        passed_on = {writer for writer, _ in read[: len(push.reads)]}
        self._write(push)
        written = [self._value(variable) for variable in push.writes]
        if is_source:
            self._passed_on |= passed_on
            self._read[push.number] = read
            for value in {*read, *written}:
                self._touching[value].append(push)
            self._made.update((value, push) for value in written)

    def candidates(self, push: Push) -> list[Push]:
        """Return the operators that may be a gradient's source."""
        lists = [self._touching[value] for value in self._kept(push)]
        if not lists:
            return self.made(push)
        common = set.intersection(*({each.number for each in one} for one in lists))
        return [each for each in lists[0] if each.number in common]

    def made(self, push: Push) -> list[Push]:
        """Return the operators whose results' gradients this gradient operator reads or adds to."""
        values = [self._value(variable) for variable in (*push.reads, *push.writes)]
        meant = {meant for value in values for meant in self._gradient_of.get(value, ())}
        return [self._made[value] for value in self._through(meant) if value in self._made]

    def reads_kept(self, push: Push, candidate: Push) -> bool:
        """Return whether an operator read every forward value that a gradient operator reads."""
        return set(self._kept(push)) <= set(self._read[candidate.number])

    def backward(self, push: Push, source: Push | None) -> None:
        """Record what a gradient operator reads and writes, with its source if that is known."""
        values = [self._value(variable) for variable in (*push.reads, *push.writes)]
        passed = [self._gradient_of[value] for value in values if value in self._gradient_of]
        meant = set(self._read[source.number]) if source else set.intersection(*passed) if passed else set()
        if push.name == _HEAD:
            meant = {value for value, made in self._made.items() if made.number not in self._passed_on}
        self._write(push)
        self._backward_writers.add(push.number)
        for variable in push.writes:
            self._gradient_of[self._value(variable)] = meant

    def _through(self, values: Iterable[Value]) -> list[Value]:
        """Return these values, and the values that became them through operators that only pass a gradient on."""
        seen, pending = dict[Value, None](), list(values)  # a dict, because it keeps the order
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen[value] = None
            made = self._made.get(value)
            if made is not None and made.name in _PASSING:
                pending += self._read[made.number]
        return list(seen)

    def _kept(self, push: Push) -> list[Value]:
        values = (self._value(variable) for variable in push.reads)
        # Leave out a gradient that the script supplies: no operator has touched it before.
        return [value for value in values if value[0] not in self._backward_writers and value in self._touching]

    def _value(self, variable: int) -> Value:
        return self._writer.get(variable, -1), variable

    def _write(self, push: Push) -> None:
        self._writer.update((variable, push.number) for variable in push.writes)


def _choose(push: Push, flow: _Flow, same: Callable[[Push, Push], bool], used: set[int]) -> Push | None:
    if push.name in _OWN | LIBRARY:
        return None
    candidates = flow.candidates(push)
    fitting = [each for each in candidates if is_named_for(push.name, each.name)]
    made = {each.number for each in flow.made(push)}
    fitting = [each for each in fitting if each.number in made] or fitting
    fitting = [each for each in fitting if each.number not in used] or fitting
    fitting = [each for each in fitting if flow.reads_kept(push, each)] or fitting
    if not fitting:
        # It may be the gradient of a part of a fused operator. Without the prefix, it is an ordinary operator.
        fitting = [each for each in candidates if each.name == FUSED or not push.name.startswith(_BACKWARD)]
    if not fitting or not all(same(fitting[-1], each) for each in fitting):
        return None
    return max(fitting, key=lambda each: each.number)


def is_named_for(backward: str, forward: str) -> bool:
    """Return whether one operator is the gradient of another, or of the same kind, as for a batched matmul."""
    return backward == forward or is_gradient(backward, forward)


@cache  # called millions of times with a few names
def is_gradient(backward: str, forward: str) -> bool:
    """Return whether the names say that one operator is the gradient of another."""
    name = backward.removeprefix(_BACKWARD)
    plain = forward.lstrip("_")
    shorter = (plain, *(forward.removeprefix(kind) for kind in ("_contrib_", "elemwise_")))
    return name != backward and name in (forward, *shorter, plain.replace("npi_", "np_"))
