"""What the operators of one traced function are for: their phases, their layers, and which put out a weight's gradient.

Notes taken while it was traced say it; of a function that was there before, its operators' names and what is assigned
to variables do: gradients are made in scopes of their own ("gradient_tape/…"), one call's after the other.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from tbdprof.facts.records import Phase
from tbdprof.hooks.on_tensorflow.watch.layers import Layers, around, found_in, scopes
from tbdprof.hooks.on_tensorflow.watch.tracing import Interval, Notes

CALLS: Mapping[str, Mapping[str, str]] = {  # operators that run functions: by what their names begin with there
    **{name: {"": "f"} for name in ("PartitionedCall", "StatefulPartitionedCall")},
    **{name: {"body": "body", "cond": "cond"} for name in ("While", "StatelessWhile")},
    **{name: {"then": "then_branch", "else": "else_branch"} for name in ("If", "StatelessIf")},
}
TAPE = "gradient_tape/"
_SAME_MEMORY = frozenset(
    {"Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "EnsureShape"}
)
_ASSIGNING = ("Assign", "ResourceApply", "ResourceScatter")
_FUNCTION_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_BACKWARD_FUNCTION, _FORWARD_FUNCTION = "__backward_", "__forward_"  # as TensorFlow names what it takes gradients of


class Reading:
    """One function's graph, read once; `notes` are None where nobody watched it being traced."""

    def __init__(self, name: str, graph: Any, notes: Notes | None, layers: Layers) -> None:
        self.name, self.graph, self.notes = name, graph, notes
        self._layers = layers
        self.operators: Sequence[Any] = graph.get_operations()
        self.place = {operator.name: place for place, operator in enumerate(self.operators)}

    def operator(self, name: str) -> Any:
        """Return the operator of a name, None where there is none."""
        place = self.place.get(name)
        return None if place is None else self.operators[place]

    def phase(self, operator: Any) -> Phase | None:
        """Return the phase of an operator, None where it is whatever this function is called in."""
        return self._phases.get(self.place[operator.name])

    def layer(self, operator: Any) -> str | None:
        """Return the layer an operator was made in, or is the gradient of one made in; None: in none."""
        place = self.place[operator.name]
        if place in self._noted_layers:
            return self._noted_layers[place]
        source = self._sources.get(place)
        if source in self.place and self.place[source] in self._noted_layers:
            return self._noted_layers[self.place[source]]
        found = self.layer_of_scope(operator.name)
        if found is None and operator.type == "AddN":
            return around([layer for each in summands(operator) if (layer := self.layer(each)) is not None])
        if found is None and (forward := _forward_call(operator)) is not None:
            return self.layer(forward)
        return found

    def layer_of_scope(self, name: str) -> str | None:
        """Return the layer whose scope an operator's name lies in."""
        found = found_in(name, self.scopes)
        if found is not None:
            return found
        return next((layer for scope in scopes(name) if (layer := self._layers.of_scope(scope)) is not None), None)

    @cached_property
    def scopes(self) -> Mapping[str, str]:
        """The layer of each forward operator that was noted, and of its scope."""
        told: dict[str, str] = {}
        for place, layer in self._noted_layers.items():
            name = self.operators[place].name
            if TAPE not in name:
                told[name] = layer
                if "/" in name:
                    told.setdefault(name.rpartition("/")[0], layer)
        return told

    @cached_property
    def leaves_batch_open(self) -> bool:
        """Tell whether something has a first axis of no known size."""
        outputs = (tensor.shape for operator in self.operators for tensor in operator.outputs)
        return any(shape.rank and shape[0] is None for shape in outputs)

    @cached_property
    def has_tape(self) -> bool:
        """Tell whether gradients are taken in this function."""
        return Phase.BACKWARD in self._phases.values()

    @cached_property
    def has_layers(self) -> bool:
        """Tell whether layers are called in this function."""
        return bool(self._noted_layers) or any(self.layer_of_scope(operator.name) for operator in self.operators[:200])

    @cached_property
    def results(self) -> list[tuple[Any, str]]:
        """The tensors that hold the gradients of variables, with these' names."""
        if self.notes is not None and self.notes.results:
            return self.notes.results
        return list(self._assigned())

    @cached_property
    def _noted_layers(self) -> Mapping[int, str]:
        return _spread(self.notes.layers if self.notes else ())

    @cached_property
    def _sources(self) -> Mapping[int, str]:
        return _spread(self.notes.gradients if self.notes else ())

    @cached_property
    def _phases(self) -> Mapping[int, Phase]:
        if self.name.startswith(_BACKWARD_FUNCTION):
            return dict.fromkeys(range(len(self.operators)), Phase.BACKWARD)
        found = dict(_spread(self.notes.phases)) if self.notes else {}
        if Phase.BACKWARD not in found.values():
            found |= dict.fromkeys(self._named_backward(), Phase.BACKWARD)
        if Phase.BACKWARD in found.values():
            self._add_update(found)
        return found

    def _named_backward(self) -> Iterator[int]:
        """Yield the places of what is in a tape's scope, and of what was made between two of those."""
        inside = [operator.name.startswith(TAPE) for operator in self.operators]
        for place, is_inside in enumerate(inside):
            between = not is_inside and "/" not in self.operators[place].name and any(inside[place + 1 : place + 3])
            if is_inside or (between and any(inside[max(place - 2, 0) : place])):
                yield place

    def _add_update(self, phases: dict[int, Phase]) -> None:
        """Add what only changes variables by their gradients: the optimizer, clipping and decay before it."""
        begun = min(place for place, phase in phases.items() if phase is Phase.BACKWARD)
        roots = {place for place, phase in phases.items() if phase is Phase.UPDATE}
        roots |= {place for place in self._changed_by(phases) if phases.get(place) is None}
        roots |= self._assigned_after(phases)
        leading = list(roots)
        while leading:
            place = leading.pop()
            phases[place] = Phase.UPDATE
            for tensor in self.operators[place].inputs:
                above = self.place.get(tensor.op.name, -1)
                if above > begun and above not in phases:
                    leading.append(above)
        own = {self._scope(place) for place in roots} - {""}
        for place in range(begun, len(self.operators)):
            if place not in phases and self._scope(place) in own:
                phases[place] = Phase.UPDATE

    def _assigned_after(self, phases: Mapping[int, Phase]) -> set[int]:
        """Return the places of assignments after all gradients where nobody noted whose they are: counters of steps."""
        ended = max(place for place, phase in phases.items() if phase is Phase.BACKWARD)
        after = range(ended + 1, len(self.operators)) if self.notes is None else ()
        return {place for place in after if self.operators[place].type.startswith(_ASSIGNING)}

    def _scope(self, place: int) -> str:
        return str(self.operators[place].name).rpartition("/")[0].partition("/")[0]

    def _changed_by(self, phases: Mapping[int, Phase]) -> Iterator[int]:
        """Yield the places of assignments that follow from gradients."""
        follows = {place for place, phase in phases.items() if phase is Phase.BACKWARD}
        for place, operator in enumerate(self.operators):
            if place in follows:
                continue
            if any(self.place.get(tensor.op.name, -1) in follows for tensor in operator.inputs):
                follows.add(place)
                if operator.type.startswith(_ASSIGNING):
                    yield place

    def _assigned(self) -> Iterator[tuple[Any, str]]:
        """Yield the gradient each variable is changed by, found from its assignment backward."""
        names = self._variables()
        for place, operator in enumerate(self.operators):
            if self._phases.get(place) is not Phase.UPDATE or not operator.type.startswith(_ASSIGNING):
                continue
            name, shape = names.get(operator.inputs[0].name, (None, None))
            found = {tensor.name: tensor for tensor in self._gradients_before(operator) if tensor.shape == shape}
            if name is not None and len(found) == 1:
                yield next(iter(found.values())), name

    def _gradients_before(self, assignment: Any) -> Iterator[Any]:
        """Yield the tensors of the backward pass that an assignment follows from."""
        leading, seen = list(assignment.inputs[1:]), set[str]()
        while leading:
            tensor = leading.pop()
            if tensor.name in seen:
                continue
            seen.add(tensor.name)
            phase = self._phases.get(self.place.get(tensor.op.name, -1))
            if phase is Phase.BACKWARD:
                yield tensor
            elif phase is Phase.UPDATE:
                leading += leading_to(tensor)

    def _variables(self) -> Mapping[str, tuple[str, Any]]:
        """Return names and shapes of trainable variables by the placeholder that stands for each in the graph."""
        trainable = self._layers.trainable()
        names = {variable.handle._id: (name, variable.shape) for name, variable in trainable}  # noqa: SLF001
        captured = ((getattr(outer, "_id", None), inner.name) for outer, inner in getattr(self.graph, "captures", ()))
        return {inner: names[outer] for outer, inner in captured if outer in names}


def leading_to(tensor: Any) -> Iterator[Any]:
    """Yield the tensors one is made of; what is read from a variable is what was assigned to it just before."""
    operator = tensor.op
    if operator.type == "IdentityN":
        yield operator.inputs[tensor.value_index]
    elif operator.type == "ReadVariableOp":
        for before in operator.control_inputs:
            if before.type.startswith("Assign") and before.inputs[0] is operator.inputs[0]:
                yield before.inputs[1]
    else:
        yield from operator.inputs


def _forward_call(operator: Any) -> Any:
    """Return the call whose gradient another call is: that takes what it put out, None where it is no such call."""
    takes = operator.inputs if operator.type in _FUNCTION_CALLS else ()
    calls = (tensor.op for tensor in takes if tensor.op.type in _FUNCTION_CALLS)
    return next((call for call in calls if call.get_attr("f").name.startswith(_FORWARD_FUNCTION)), None)


def origin(tensor: Any) -> Any:
    """Return the tensor whose memory another is: what only looks at it in another shape is walked through."""
    while tensor.op.type in _SAME_MEMORY:
        tensor = tensor.op.inputs[tensor.value_index if tensor.op.type == "IdentityN" else 0]
    return tensor


def summands(operator: Any) -> Iterator[Any]:
    """Yield the operators that put out what a sum adds; a sum may be made in the memory of one of them."""
    if operator.type in ("AddN", "AccumulateNV2"):
        yield from (origin(tensor).op for tensor in operator.inputs)


def _spread(intervals: Iterable[Interval]) -> dict[int, Any]:
    """Return what is told of each place by the innermost interval it lies in."""
    told: dict[int, Any] = {}
    by_length: defaultdict[int, list[Interval]] = defaultdict(list)
    for interval in intervals:
        by_length[interval.last - interval.first].append(interval)
    for length in sorted(by_length, reverse=True):
        for interval in by_length[length]:
            told.update(dict.fromkeys(range(interval.first, interval.last), interval.told))
    return told
