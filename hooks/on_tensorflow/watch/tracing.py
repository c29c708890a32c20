"""What TensorFlow does while it runs or traces Python code: the phase, the layer, and whose gradient it computes.

While a function is traced, operators created between the start and the end of a phase, layer or gradient belong to it.
Only positions in the graph are kept. The graph itself is not changed.

Functions of TensorFlow and Keras are wrapped only while a function is traced or a window is open. Between windows only
the function that traces is wrapped: training that traces nothing does not call it.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop
from tensorflow.python.framework import func_graph

from tbdprof.facts.records import Phase
from tbdprof.hooks.on_tensorflow.watch.layers import Interval, Layers, Notes, in_order, replica_ending, variable_name
from tbdprof.hooks.patches import Replaced, Wrap
from tbdprof.hooks.waiting import waits

OnGradient = Callable[[str, Sequence[Any], Sequence[Any]], str | None]
_GRADIENT = backprop._gradient_function  # noqa: SLF001 - the only way from a tape to its operators


class _GradientFunction:
    """What a tape calls for the gradient of an operator, wrapped for a while."""

    def __init__(self, make: Callable[[Replaced], Replaced]) -> None:
        self._wrapped = make(_GRADIENT)

    def put(self) -> None:
        """Wrap it."""
        pywrap_tfe.TFE_Py_RegisterGradientFunction(self._wrapped)

    def take(self) -> None:
        """Put the original back."""
        pywrap_tfe.TFE_Py_RegisterGradientFunction(_GRADIENT)


@dataclass(slots=True)
class Here:
    """A thread's phase and layer; in the backward pass the layer is that of the operator whose gradient is computed."""

    phase: Phase = Phase.OUTSIDE
    layer: str | None = None


class Tracing:
    """Takes notes from `begin` until `end`, which restores everything."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._notes: weakref.WeakKeyDictionary[Any, Notes] = weakref.WeakKeyDictionary()
        self._local = threading.local()
        self._wraps: list[Wrap | _GradientFunction] = []
        self._modules: set[type] = set()
        self._lock = threading.RLock()
        self._reasons = 0  # open windows and functions that are being traced
        # Called for the layer of a gradient in eager mode; None if no window is open.
        self._on_gradient: OnGradient | None = None
        self._traces = Wrap(func_graph, "func_graph_from_py_func", self._tracing)

    def notes(self, graph: object) -> Notes | None:
        """Return the notes of a graph."""
        found: Notes | None = self._notes.get(graph)
        return found

    @property
    def here(self) -> Here:
        """Return this thread's phase and layer."""
        found: Here | None = getattr(self._local, "here", None)
        if found is None:
            found = self._local.here = Here()
        return found

    def begin(self) -> None:
        """Follow every function that is traced from now on; do nothing the second time."""
        if self._wraps:
            return
        self._wraps += [
            Wrap(tf.GradientTape, "gradient", self._around(self._gradient)),
            Wrap(tf.GradientTape, "__enter__", self._around(self._enter)),
            _GradientFunction(self._around_gradient_function),
        ]
        keras = _keras()
        if keras is not None:
            apply = self._around(self._apply)
            self._wraps += [
                Wrap(keras.optimizers.Optimizer, "apply", apply),
                Wrap(keras.optimizers.LossScaleOptimizer, "apply", apply),  # checks gradients before its own step
                Wrap(keras.layers.Layer, "__call__", self._around(self._call)),
            ]
        self.follow_modules()
        self._traces.put()

    def end(self) -> None:
        """Restore everything."""
        with self._lock:
            self._traces.take()
            for each in reversed(self._wraps):
                each.take()
            self._wraps.clear()
            self._modules.clear()

    def open_window(self, on_gradient: "OnGradient") -> None:
        """Follow eager mode, too, until `close_window`."""
        self._on_gradient = on_gradient
        self._put()

    def close_window(self) -> None:
        """Follow eager mode no more; do nothing if no window is open."""
        if self._on_gradient is not None:
            self._on_gradient = None
            self._take()

    def follow_modules(self) -> None:
        """Follow the calls of non-Keras modules that became known since `begin`."""
        with self._lock:
            for kind in self._layers.types() - self._modules if self._wraps else ():
                self._modules.add(kind)
                if "__call__" in vars(kind):
                    self._wraps.append(Wrap(kind, "__call__", self._around(self._call)))
                    if self._reasons:
                        self._wraps[-1].put()

    def _put(self) -> None:
        with self._lock:
            self._reasons += 1
            if self._reasons == 1:
                for each in self._wraps:
                    each.put()

    def _take(self) -> None:
        with self._lock:
            self._reasons -= 1
            if not self._reasons:
                for each in reversed(self._wraps):
                    each.take()

    def _tracing(self, original: Replaced) -> Replaced:
        def trace(*arguments: Any, **named: Any) -> Any:
            self._put()
            try:
                return original(*arguments, **named)
            finally:
                self._take()

        return trace

    def _around(self, around: Replaced) -> Callable[[Replaced], Replaced]:
        def make(original: Replaced) -> Replaced:
            def call(thing: Any, /, *args: Any, **named: Any) -> Any:
                if self._passes():
                    return original(thing, *args, **named)
                return around(lambda: original(thing, *args, **named), thing, *args, **named)

            return call

        return make

    def _around_gradient_function(self, original: Replaced) -> Replaced:
        def call(op_name: str, attributes: Any, count: int, inputs: Any, outputs: Any, *rest: Any) -> Any:
            if self._passes():
                return original(op_name, attributes, count, inputs, outputs, *rest)
            with self._gradient_of(op_name, inputs, outputs, str(rest[-1] or "")):
                return original(op_name, attributes, count, inputs, outputs, *rest)

        return call

    def _passes(self) -> bool:
        """Return whether there is nothing to note: no window is open, and no function is being traced."""
        return self._on_gradient is None and tf.executing_eagerly()

    def _gradient(
        self, original: Callable[[], Any], tape: Any, /, target: Any, sources: Any, *_: Any, **__: Any
    ) -> Any:
        before = self.here.phase
        with self._during(Phase.BACKWARD):
            result = original()
        if not tf.executing_eagerly():
            self._note_results(sources, result)
        elif pywrap_tfe.TFE_Py_TapeSetIsEmpty():
            self.here.phase = Phase.OUTSIDE
        else:
            self.here.phase = before
        return result

    def _enter(self, original: Callable[[], Any], tape: Any) -> Any:
        if tf.executing_eagerly() and self.here.phase is Phase.OUTSIDE:
            self.here.phase = Phase.FORWARD
        return original()

    def _apply(self, original: Callable[[], Any], optimizer: Any, /, *_: Any, **__: Any) -> Any:
        with self._during(Phase.UPDATE):
            return original()

    def _call(self, original: Callable[[], Any], layer: Any, /, *_: Any, **__: Any) -> Any:
        if tf.executing_eagerly():
            return self._call_eagerly(original, layer)
        # The layer itself is noted: its model may be found only after the function was traced.
        with self._noted("layers", _held(layer)), self._again():
            return original()

    def _call_eagerly(self, original: Callable[[], Any], layer: Any) -> Any:
        path = self._path(layer)
        if path is None:
            return original()
        here = self.here
        around, before = here.layer, here.phase
        here.layer = path
        if before is Phase.OUTSIDE:
            here.phase = Phase.FORWARD
        try:
            with self._again():
                return original()
        finally:
            here.layer = around
            if pywrap_tfe.TFE_Py_TapeSetIsEmpty():
                here.phase = before

    @contextmanager
    def _again(self) -> Iterator[None]:
        """Note a layer's call while gradients are computed as a second run of its forward pass."""
        if self.here.phase is not Phase.BACKWARD:
            yield
            return
        with self._during(Phase.RECOMPUTE):
            yield

    @waits
    def _path(self, layer: Any) -> str | None:
        path = self._layers.path(layer)
        if path is None and self._layers.roots():
            self._layers.refresh()
            path = self._layers.path(layer)
        return path

    @contextmanager
    def _during(self, phase: Phase) -> Iterator[None]:
        here = self.here
        around, here.phase = here.phase, phase
        try:
            with self._noted("phases", phase):
                yield
        finally:
            here.phase = around

    @contextmanager
    def _gradient_of(self, op_name: str, inputs: Any, outputs: Any, scope: str) -> Iterator[None]:
        if not tf.executing_eagerly():
            with self._noted("gradients", _forward(op_name, inputs, outputs)):
                yield
            return
        here = self.here
        before = here.layer
        if self._on_gradient is not None:
            here.layer = self._layer_of_gradient(op_name, inputs or (), outputs or (), scope)
        try:
            yield
        finally:
            here.layer = before

    @waits
    def _layer_of_gradient(self, op_name: str, inputs: Sequence[Any], outputs: Sequence[Any], scope: str) -> str | None:
        found = None if self._on_gradient is None else self._on_gradient(op_name, inputs, outputs)
        return self._layers.of_scope(scope, numbered=False, of_parts=True) if found is None else found

    @contextmanager
    def _noted(self, kind: str, value: Any) -> Iterator[None]:
        """Note which operators are created meanwhile in the current graph; in eager mode there is none."""
        if value is None or tf.executing_eagerly():
            yield
            return
        graph = tf.compat.v1.get_default_graph()
        first = _size(graph)
        try:
            yield
        finally:
            self._note(graph, kind, first, value)

    @waits
    def _note(self, graph: Any, kind: str, first: int, value: Any) -> None:
        last = _size(graph)
        if last > first:
            getattr(self._of(graph), kind).append(Interval(first, last, value, _replica()))

    @waits
    def _note_results(self, sources: Any, result: Any) -> None:
        notes = self._of(tf.compat.v1.get_default_graph())
        pairs = zip(tf.nest.flatten(sources), in_order(result), strict=False)
        named = [(value, variable_name(source)) for source, value in pairs if isinstance(value, tf.Tensor)]
        notes.results += [(value, name + replica_ending(_replica())) for value, name in named if name is not None]

    def _of(self, graph: Any) -> Notes:
        found: Notes = self._notes.setdefault(graph, Notes())
        return found


@waits
def _held(layer: Any) -> "weakref.ref[Any]":
    return weakref.ref(layer)


@waits
def _forward(op_name: str, inputs: Any, outputs: Any) -> str | None:
    """Return the name of the operator whose gradient is computed; only some of its results and operands are known."""
    for tensor in outputs or ():
        if tensor is not None and hasattr(tensor, "op"):
            return str(tensor.op.name)
    known = [tensor for tensor in inputs or () if tensor is not None and hasattr(tensor, "op")]
    takers = [{taker.name for taker in tensor.consumers() if taker.type == op_name} for tensor in known]
    common = set.intersection(*takers) if takers else set()
    return next(iter(common)) if len(common) == 1 else None


def _replica() -> int:
    """Return the number of the replica that this thread is, or 0 if there are no replicas, or it is not known."""
    context = tf.distribute.get_replica_context() if tf.distribute.has_strategy() else None
    number = getattr(context, "_replica_id_in_sync_group", 0)  # its public property would add an operator to the graph
    return number if isinstance(number, int) else 0


def _size(graph: Any) -> int:
    return len(graph.get_operations())


def _keras() -> Any:
    return sys.modules.get("keras")
