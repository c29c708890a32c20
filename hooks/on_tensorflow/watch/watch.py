"""Watch TensorFlow's Python API: tapes, gradients, optimizers' updates, and the functions that contain them."""

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.distribute_lib import StrategyBase
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable, _UnreadVariable

from tbdprof.facts.batches import Batches
from tbdprof.facts.records import Phase, Role
from tbdprof.hooks.naming import prefixes
from tbdprof.hooks.on_tensorflow.session.events import HELD, READ, READING, STEP
from tbdprof.hooks.on_tensorflow.session.session import Session
from tbdprof.hooks.on_tensorflow.watch import owners
from tbdprof.hooks.on_tensorflow.watch.layers import in_order
from tbdprof.hooks.on_tensorflow.watch.owners import Owned, Watched
from tbdprof.hooks.on_tensorflow.watch.phases import BEGIN, END
from tbdprof.hooks.on_tensorflow.watch.readings import Readings, Rows
from tbdprof.hooks.on_tensorflow.watch.variables import plain
from tbdprof.hooks.patches import Patches, Replaced
from tbdprof.hooks.threads import are_others
from tbdprof.hooks.waiting import waits

# The reasons for which functions are replaced.
_WINDOW, _UPDATES = "window", "updates"


@dataclass(eq=False, slots=True)
class _Call:
    """A thread's outermost call of a `tf.function`, or in eager mode of `Strategy.run`, with the updates in it."""

    function: Any  # None for `Strategy.run`
    updated: list[Any] = field(default_factory=list)  # optimizers that stepped in eager mode, each once


class _Thread(threading.local):
    """The outermost calls that a thread is in, and how deep the thread is in layers."""

    function: _Call | None = None
    run: _Call | None = None
    calls = 0


class Watch:
    """Finds models and optimizers, reports phases to a window, and reads owners into its order."""

    def __init__(self, name_layers: Callable[[str, object], None]) -> None:
        """Take a function that names a model's layers; its first argument is the prefix of the parameters' names."""
        self.watched = Watched()
        self.batches = Batches()  # of the open window
        self._name_layers = name_layers
        self._readings = Readings(self.watched)
        self._reads: list[Rows] = []  # by the number in the marker of each reading
        self._numbering, self._held = threading.Lock(), count()
        self._session: Session | None = None  # None if no window is open
        self._reads_gradients = False
        self._finds_models = self._finds_optimizers = False
        self._callbacks: list[Callable[[object], None]] = []
        self._updating: weakref.WeakKeyDictionary[Any, list[weakref.ref[Any]]] = weakref.WeakKeyDictionary()
        self._here = _Thread()
        self._calls: list[_Call] = []  # of all threads
        self._pid = os.getpid()
        self._patches = Patches(
            {
                "tapes": [
                    (tf.GradientTape, "__enter__", self._around_enter),
                    (tf.GradientTape, "__exit__", self._around_exit),
                    (tf.GradientTape, "gradient", self._around_gradient),
                ],
                "layers": [
                    (keras.Layer, "__call__", self._around_layer),
                    (keras.Model, "train_on_batch", self._around_batch),
                ],
                "variables": [(BaseResourceVariable, "__init__", self._around_new_variable)],
                "updates": [(keras.optimizers.Optimizer, "apply", self._around_apply)],
                "functions": [
                    (Function, "__call__", self._around_function),
                    (StrategyBase, "run", self._around_run),
                ],
            }
        )

    def find(self, *, models: bool, optimizers: bool) -> None:
        """Choose whether `look` searches for models, optimizers or both."""
        self._finds_models, self._finds_optimizers = models, optimizers

    def look(self) -> None:
        """Find the models and optimizers that were not given among all Python objects."""
        if self._finds_optimizers:
            for optimizer in owners.found_optimizers([] if self._finds_models else self.watched.models()):
                self.watched.add_optimizer(optimizer)
        if self._finds_models:
            for model in owners.found_models(self.watched.optimizers()):
                self.watched.add_model(model)
            self.name_layers()

    def name_layers(self) -> None:
        """Name the layers of the watched models."""
        for prefix, model in prefixes(self.watched.models()):
            self._name_layers(prefix, model)

    def on_update(self, callback: Callable[[object], None]) -> None:
        """Call `callback` with the optimizer after each update: at once in eager mode, else after the function."""
        self._callbacks.append(callback)
        for group in ("updates", "functions"):
            self._patches.need(group, _UPDATES)

    def open_window(self, session: Session, *, reads_owners: bool) -> None:
        """Begin to mark phases in a session; with `reads_owners`, also read gradients."""
        self._session, self._reads_gradients, self._reads = session, reads_owners, []
        self._readings.forget()
        self.batches.take()
        self._here = _Thread()
        for group in ("tapes", "layers", "variables", "updates", "functions"):
            self._patches.need(group, _WINDOW)

    def close_window(self) -> None:
        """Restore TensorFlow's functions and set no more markers."""
        self._patches.release(_WINDOW)
        self._session = None

    def close(self) -> None:
        """Restore everything."""
        self._callbacks.clear()
        for reason in (_WINDOW, _UPDATES):
            self._patches.release(reason)

    def reads(self) -> list[list[Owned]]:
        """Return the owners of each reading of the last window, by the number in the reading's marker."""
        return [rows() for rows in self._reads]

    def read(self, rows: Rows) -> None:
        """Keep the owners read at this place of the order; `rows` is called when they are needed."""
        session = self._own_session()
        if session is not None:
            with self._numbering:
                session.mark(f"{READ}{len(self._reads)}")
                self._reads.append(rows)

    def read_all(self) -> None:
        """Read all owners; if other threads may change them meanwhile, set a marker while each is held."""
        session = self._own_session()
        if session is None:
            return
        if not are_others():
            self.read(self._readings.together())
            return
        session.mark(READING)
        self.read(self._readings.one_by_one(partial(self._mark_held, session)))

    def _mark_held(self, session: Session) -> int:
        number = next(self._held)
        session.mark(f"{HELD}{number}")
        return number

    def mark_step(self) -> None:
        """Set a step marker where a step ends."""
        session = self._own_session()
        if session is not None:
            session.mark(STEP)

    def _own_session(self) -> Session | None:
        return self._session if os.getpid() == self._pid else None

    @contextmanager
    def _phase(self, phase: Phase) -> Iterator[None]:
        session = self._own_session() if tf.executing_eagerly() else None
        if session is not None:
            session.mark(BEGIN + phase.name)
        try:
            yield
        finally:
            if session is not None and session is self._session:
                session.mark(END + phase.name)

    def _around_new_variable(self, original: Replaced) -> Replaced:
        def create(variable: Any, /, *arguments: Any, **named: Any) -> None:
            if not isinstance(variable, _UnreadVariable):  # else it is what an assignment returns
                self._readings.forget()
            original(variable, *arguments, **named)

        return create

    def _around_enter(self, original: Replaced) -> Replaced:
        def enter(tape: Any) -> Any:
            session = self._own_session()
            if session is not None and tf.executing_eagerly():
                session.mark(BEGIN + Phase.FORWARD.name)
            return original(tape)

        return enter

    def _around_exit(self, original: Replaced) -> Replaced:
        def leave(tape: Any, *error: Any) -> Any:
            session = self._own_session()
            if session is not None and tf.executing_eagerly():
                session.mark(END + Phase.FORWARD.name)
            return original(tape, *error)

        return leave

    def _around_layer(self, original: Replaced) -> Replaced:
        def call(layer: Any, /, *arguments: Any, **named: Any) -> Any:
            if self._here.calls or not tf.executing_eagerly():
                return original(layer, *arguments, **named)
            self._here.calls += 1
            if any(layer is model for model in self.watched.models()):
                self._count(layer, (arguments, named), is_layer=False)
            try:
                with self._phase(Phase.FORWARD):
                    return original(layer, *arguments, **named)
            finally:
                self._here.calls -= 1

        return call

    @waits
    def _count(self, called: object, given: object, *, is_layer: bool) -> None:
        """Count the first input of a model, or of a function that may contain one."""
        if self._own_session() is None:
            return
        arrays = [each for each in tf.nest.flatten(given) if isinstance(each, EagerTensor | np.ndarray) and each.ndim]
        if arrays:
            is_tokens = arrays[0].dtype.name in ("int32", "int64")
            shape, continues = tuple(arrays[0].shape), len(arrays) > 1  # a state of an earlier call
            self.batches.called(id(called), shape, is_tokens=is_tokens, is_layer=is_layer, continues=continues)

    def _around_batch(self, original: Replaced) -> Replaced:
        def train(model: Any, /, x: Any = None, *arguments: Any, **named: Any) -> Any:
            if not model.run_eagerly:  # else the model itself is called
                self._count(model, x, is_layer=False)
            return original(model, x, *arguments, **named)

        return train

    def _around_gradient(self, original: Replaced) -> Replaced:
        def gradient(tape: Any, /, target: Any, sources: Any, *arguments: Any, **named: Any) -> Any:
            if self._own_session() is not None and tf.executing_eagerly():
                self.batches.passed()
            with self._phase(Phase.BACKWARD):
                found = original(tape, target, sources, *arguments, **named)
            if self._reads_gradients and tf.executing_eagerly():
                self._read_gradients(sources, found)
            return found

        return gradient

    @waits
    def _read_gradients(self, sources: Any, found: Any) -> None:
        if self._own_session() is None:
            return
        names = self._readings.names()
        pairs = zip(tf.nest.flatten(sources), in_order(found), strict=False)
        named = ((names.get(id(plain(source))), each) for source, each in pairs)
        rows = [
            owners.of_tensor(Role.GRADIENT, name, each)
            for name, each in named
            if name is not None and isinstance(each, EagerTensor)
        ]
        if rows:
            self.read(lambda: [row for row in rows if row is not None])

    def _around_apply(self, original: Replaced) -> Replaced:
        def apply(optimizer: Any, /, *arguments: Any, **named: Any) -> Any:
            if not tf.executing_eagerly():
                self._updates_in(self._call("function"), optimizer)
                return original(optimizer, *arguments, **named)
            with self._phase(Phase.UPDATE):
                result = original(optimizer, *arguments, **named)
            self._updated([optimizer])
            return result

        return apply

    def _around_function(self, original: Replaced) -> Replaced:
        def call(function: Any, /, *arguments: Any, **named: Any) -> Any:
            if self._here.function is not None or not tf.executing_eagerly():
                return original(function, *arguments, **named)
            if self._session is not None:
                self._count(function, (arguments, named), is_layer=True)
            with self._inside("function", _Call(function)):
                result = original(function, *arguments, **named)
            self._updated([each for ref in self._updating.get(function, ()) if (each := ref()) is not None])
            return result

        return call

    def _around_run(self, original: Replaced) -> Replaced:
        """Make one step of all updates that a strategy's call runs: those of Keras's `train_step`, and of replicas."""

        def run(strategy: Any, /, *arguments: Any, **named: Any) -> Any:
            if self._here.run is not None or not tf.executing_eagerly():
                return original(strategy, *arguments, **named)
            with self._inside("run", _Call(None)) as mine:
                result = original(strategy, *arguments, **named)
            self._updated(mine.updated)
            return result

        return run

    @contextmanager
    def _inside(self, kind: str, call: _Call) -> Iterator[_Call]:
        setattr(self._here, kind, call)
        self._calls.append(call)
        try:
            yield call
        finally:
            self._calls.remove(call)
            setattr(self._here, kind, None)

    def _call(self, kind: str) -> _Call | None:
        """Return this thread's outermost call of a kind; a replica's thread works for the thread that waits for it."""
        found: _Call | None = getattr(self._here, kind)
        if found is None and tf.distribute.has_strategy():
            calls = (each for each in reversed(self._calls) if (each.function is None) == (kind == "run"))
            found = next(calls, None)
        return found

    @waits
    def _updates_in(self, call: _Call | None, optimizer: Any) -> None:
        """Remember that a function contains an optimizer's update."""
        if call is not None:
            known = self._updating.setdefault(call.function, [])
            if not any(ref() is optimizer for ref in known):
                known.append(weakref.ref(optimizer))

    def _updated(self, optimizers: Sequence[Any]) -> None:
        if os.getpid() != self._pid:
            return
        run = self._call("run") if optimizers else None
        if run is not None:
            run.updated += [each for each in optimizers if not any(each is known for known in run.updated)]
            return
        for optimizer in optimizers:
            for callback in list(self._callbacks):
                callback(optimizer)


def add_all(watch: Watch, models: Sequence[object], optimizers: Sequence[object]) -> list[str]:
    """Watch these and find what is missing; return the class names of what is neither model nor optimizer."""
    strange = [type(each).__name__ for each in models if not isinstance(each, keras.Layer | tf.Module)]
    strange += [type(each).__name__ for each in optimizers if not isinstance(each, keras.optimizers.Optimizer)]
    if strange:
        return strange
    for model in models:
        watch.watched.add_model(model)
    compiled = [each for model in models if (each := getattr(model, "optimizer", None)) is not None]
    for optimizer in [*optimizers, *(() if optimizers else compiled)]:
        watch.watched.add_optimizer(optimizer)
    watch.name_layers()
    watch.find(models=not watch.watched.models(), optimizers=not watch.watched.optimizers())
    return []
