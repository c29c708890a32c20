"""The purpose of each operator of one traced function: its phase, its layer, and the weight whose gradient it outputs.

This follows from notes taken while the function was traced. For a function that was traced earlier, it follows from its
operators' names and from the assignments to variables. Gradients are computed in name scopes of their own
("gradient_tape/…"), one call's after the other.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from tbdprof.facts.records import Phase
from tbdprof.hooks.naming import around
from tbdprof.hooks.on_tensorflow.watch.layers import Interval, Layers, Notes, found_in, scopes

CALLS: Mapping[str, Mapping[str, str]] = {  # operators that run functions: part of a name -> attribute
    **{name: {"": "f"} for name in ("PartitionedCall", "StatefulPartitionedCall")},
    **{name: {"body": "body", "cond": "cond"} for name in ("While", "StatelessWhile")},
    **{name: {"then": "then_branch", "else": "else_branch"} for name in ("If", "StatelessIf")},
}
TAPE = "gradient_tape/"
_REPLICA = re.compile(r"(?:^|/)replica_(\d+)(?:_\d+)?/")  # the scope of a strategy's replicas, except for the first
_SAME_MEMORY = frozenset(
    {"Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "EnsureShape"}
)
_ASSIGNING = ("Assign", "ResourceApply", "ResourceScatter")
_FUNCTION_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# TensorFlow's names of functions with gradients; the longer one is of a gradient that is taken in eager mode.
_BACKWARD_FUNCTIONS, _FORWARD_FUNCTION = ("__backward_", "__inference___backward_"), "__forward_"


class Reading:
    """One function's graph, analyzed once; `notes` is None if nothing was noted while it was traced."""

    def __init__(self, name: str, graph: Any, notes: Notes | None, layers: Layers) -> None:
        self.name, self.graph, self.notes = name, graph, notes
        self._layers = layers
        self.operators: Sequence[Any] = graph.get_operations()
        self.place = {operator.name: place for place, operator in enumerate(self.operators)}

    def operator(self, name: str) -> Any:
        """Return the operator of a name, or None if there is none."""
        place = self.place.get(name)
        return None if place is None else self.operators[place]

    def phase(self, operator: Any) -> Phase | None:
        """Return an operator's phase, or None if it is the phase of the call of this function."""
        return self._phases.get(self.place[operator.name])

    def layer(self, operator: Any) -> str | None:
        """Return the layer that an operator, or the operator it is the gradient of, was created in, or None."""
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
        """Return the layer whose name scope contains an operator's name."""
        found = found_in(name, self.scopes)
        if found is not None:
            return found
        # Notes have every call of a layer; without notes, names alone show those of a model's parts.
        found_by_name = (self._layers.of_scope(scope, of_parts=self.notes is None) for scope in scopes(name))
        return next((layer for layer in found_by_name if layer is not None), None)

    @cached_property
    def scopes(self) -> Mapping[str, str]:
        """The layer of each noted forward operator, and of its name scope."""
        layers: dict[str, str] = {}
        for place, layer in self._noted_layers.items():
            name = self.operators[place].name
            if TAPE not in name:
                layers[name] = layer
                if "/" in name:
                    layers.setdefault(name.rpartition("/")[0], layer)
        return layers

    @cached_property
    def leaves_batch_open(self) -> bool:
        """Return whether some output has a first axis of unknown size."""
        outputs = (tensor.shape for operator in self.operators for tensor in operator.outputs)
        return any(shape.rank and shape[0] is None for shape in outputs)

    @cached_property
    def has_tape(self) -> bool:
        """Return whether this function computes gradients."""
        return Phase.BACKWARD in self._phases.values()

    @cached_property
    def has_layers(self) -> bool:
        """Return whether this function calls layers."""
        return bool(self._noted_layers) or any(self.layer_of_scope(operator.name) for operator in self.operators[:200])

    @cached_property
    def results(self) -> list[tuple[Any, str]]:
        """The tensors that hold variables' gradients, with the variables' names."""
        if self.notes is not None and self.notes.results:
            return self.notes.results
        return list(self._assigned())

    @cached_property
    def variables(self) -> Mapping[str, tuple[str, Any]]:
        """The names and shapes of trainable variables, by the placeholder for each in the graph."""
        trainable = self._layers.trainable()
        names = {variable.handle._id: (name, variable.shape) for name, variable in trainable}  # noqa: SLF001
        captured = ((getattr(outer, "_id", None), inner.name) for outer, inner in getattr(self.graph, "captures", ()))
        return {inner: names[outer] for outer, inner in captured if outer in names}

    @cached_property
    def _noted_layers(self) -> Mapping[int, str]:
        notes = self.notes.layers if self.notes else ()
        self._layers.refresh()  # models may have got parts while the function was traced
        called = ((note, note.value()) for note in notes)
        paths = ((note, self._layers.path(layer)) for note, layer in called if layer is not None)
        return self._spread([replace(note, value=path) for note, path in paths if path is not None])

    @cached_property
    def _sources(self) -> Mapping[int, str]:
        return self._spread(self.notes.gradients if self.notes else ())

    @cached_property
    def _phases(self) -> Mapping[int, Phase]:
        if self.name.startswith(_BACKWARD_FUNCTIONS):
            return dict.fromkeys(range(len(self.operators)), Phase.BACKWARD)
        found = self._spread(self.notes.phases) if self.notes else {}
        if Phase.BACKWARD not in found.values():
            found |= dict.fromkeys(self._named_backward(), Phase.BACKWARD)
        if Phase.BACKWARD in found.values():
            self._add_update(found)
        return found

    def _spread(self, intervals: Sequence[Interval]) -> dict[int, Any]:
        """Return the value for each index, from the innermost interval of its replica around it."""
        values: dict[int, Any] = {}
        # The outermost first: an interval is noted when it ends, so of two of one length the later one is around.
        latest_first = list(reversed(intervals))
        for interval in sorted(latest_first, key=lambda each: each.first - each.last):
            own = (each for each in range(interval.first, interval.last) if self._replicas[each] == interval.replica)
            values.update(dict.fromkeys(own, interval.value))
        return values

    @cached_property
    def _replicas(self) -> Sequence[int]:
        """The number of each operator's replica."""
        found = (_REPLICA.search(operator.name) for operator in self.operators if self._has_replicas)
        return [int(each[1]) if each else 0 for each in found] or [0] * len(self.operators)

    @cached_property
    def _has_replicas(self) -> bool:
        return self.notes is not None and any(each.replica for each in self.notes.phases)

    def _named_backward(self) -> Iterator[int]:
        """Yield the indices of operators in a tape's scope, and of those created between two of them."""
        inside = [operator.name.startswith(TAPE) for operator in self.operators]
        for place, is_inside in enumerate(inside):
            between = not is_inside and "/" not in self.operators[place].name and any(inside[place + 1 : place + 3])
            if is_inside or (between and any(inside[max(place - 2, 0) : place])):
                yield place

    def _add_update(self, phases: dict[int, Phase]) -> None:
        """Add what only changes variables by their gradients: the optimizer, and clipping and decay before it."""
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
        """Return the indices of assignments after all gradients if there are no notes: they are step counters."""
        ended = max(place for place, phase in phases.items() if phase is Phase.BACKWARD)
        after = range(ended + 1, len(self.operators)) if self.notes is None else ()
        return {place for place in after if self.operators[place].type.startswith(_ASSIGNING)}

    def _scope(self, place: int) -> str:
        """Return the outermost name scope of an operator within its replica."""
        return _REPLICA.sub("", str(self.operators[place].name)).rpartition("/")[0].partition("/")[0]

    def _changed_by(self, phases: Mapping[int, Phase]) -> Iterator[int]:
        """Yield the indices of assignments that depend on gradients."""
        follows = {place for place, phase in phases.items() if phase is Phase.BACKWARD}
        for place, operator in enumerate(self.operators):
            if place in follows:
                continue
            if any(self.place.get(tensor.op.name, -1) in follows for tensor in operator.inputs):
                follows.add(place)
                if operator.type.startswith(_ASSIGNING):
                    yield place

    def _assigned(self) -> Iterator[tuple[Any, str]]:
        """Yield the gradient that changes each variable, found by going backward from the variable's assignment."""
        names = self.variables
        for place, operator in enumerate(self.operators):
            if self._phases.get(place) is not Phase.UPDATE or not operator.type.startswith(_ASSIGNING):
                continue
            name, shape = names.get(operator.inputs[0].name, (None, None))
            found = {tensor.name: tensor for tensor in self._gradients_before(operator) if tensor.shape == shape}
            if name is not None and len(found) == 1:
                yield next(iter(found.values())), name

    def _gradients_before(self, assignment: Any) -> Iterator[Any]:
        """Yield the tensors of the backward pass that an assignment depends on."""
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


def leading_to(tensor: Any) -> Iterator[Any]:
    """Yield the tensors that a tensor is computed from; a variable read yields what was assigned just before."""
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
    """Return the forward call whose gradient this call computes, because it takes the call's outputs, or None."""
    takes = operator.inputs if operator.type in _FUNCTION_CALLS else ()
    calls = (tensor.op for tensor in takes if tensor.op.type in _FUNCTION_CALLS)
    return next((call for call in calls if call.get_attr("f").name.startswith(_FORWARD_FUNCTION)), None)


def origin(tensor: Any) -> Any:
    """Return the tensor that owns a tensor's memory: operators that only change the shape are skipped."""
    while tensor.op.type in _SAME_MEMORY:
        tensor = tensor.op.inputs[tensor.value_index if tensor.op.type == "IdentityN" else 0]
    return tensor


def summands(operator: Any) -> Iterator[Any]:
    """Yield the operators whose outputs a sum adds; the sum may be stored in the memory of one of them."""
    if operator.type in ("AddN", "AccumulateNV2"):
        yield from (origin(tensor).op for tensor in operator.inputs)


def summed_alone(operator: Any, size: int | None) -> Iterator[Any]:
    """Yield the operator whose `size` elements are summed along axes of length 1: Grappler takes such a sum out."""
    if operator.type == "Sum" and size is not None and operator.inputs[0].shape.num_elements() == size:
        yield origin(operator.inputs[0]).op
