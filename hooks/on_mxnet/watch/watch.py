"""Watch MXNet's Python API: calls of models, recording scopes, backward passes, steps of trainers and modules."""

import os
import threading
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.executor import Executor
from mxnet.gluon import Block, HybridBlock, Trainer
from mxnet.gluon.rnn.rnn_layer import _RNNLayer
from mxnet.module import BucketingModule, Module, SequentialModule
from mxnet.module.base_module import BaseModule

from tbdprof.facts.batches import Batches, Layout
from tbdprof.facts.records import Phase
from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
from tbdprof.hooks.on_mxnet.memory.blocks import PLANNER
from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.on_mxnet.watch import owners, symbols
from tbdprof.hooks.on_mxnet.watch.by_hand import ByHand
from tbdprof.hooks.on_mxnet.watch.phases import Phases
from tbdprof.hooks.on_mxnet.watch.step_phases import StepPhases
from tbdprof.hooks.on_mxnet.watch.trainers import AnyTrainer
from tbdprof.hooks.patches import Patches, Replaced
from tbdprof.hooks.waiting import waits

# The reasons for which a group of functions is replaced.
_WINDOW, _MODELS, _TRAINERS, _UPDATES, _POOLS = "window", "models", "trainers", "updates", "pools"
_BY_HAND = "by hand"
_TOKEN_BYTES = 4  # smaller integers are pixels
_MODULES = (Module, BucketingModule, SequentialModule)


class _Thread(threading.local):
    """A thread's position: how many calls, recording scopes, backward passes and steps surround it."""

    calls = 0
    scopes = 0
    passes = 0
    steps = 0
    layout: Layout | None = None  # of the input of the model that is called


class Watch:
    """Finds models and trainers as they are used, and notes what begins and ends the phases of a step."""

    def __init__(self, allocator: Allocator) -> None:
        self.watched = owners.Watched()
        self.batches = Batches()  # of the open window
        self.batch_size: int | None = None  # as the last step of a trainer was given
        self.steps = StepPhases(allocator, self.watched)
        self._allocator = allocator
        self._callbacks: list[Callable[[object], None]] = []
        self._here = _Thread()
        self._finds_models = self._finds_trainers = False
        self._by_hand = ByHand(self.watched)
        self._has_stepped = False  # a trainer has: no step is by hand from now on
        self._pid = os.getpid()
        self._patches = Patches(
            {
                "blocks": [(Block, "__call__", self._around_call)],
                "executors": [
                    (Executor, "forward", self._around_execution),
                    (Executor, "backward", self._around_pass),
                ],
                "modules": [
                    *((module, "forward", self._around_module) for module in _MODULES),
                    *((module, "backward", self._around_pass) for module in _MODULES),
                ],
                "autograd": [
                    (autograd._RecordingStateScope, "__enter__", self._around_enter),  # noqa: SLF001
                    (autograd._RecordingStateScope, "__exit__", self._around_exit),  # noqa: SLF001
                    # The function that autograd.backward, autograd.grad and NDArray.backward all call.
                    (layout.library(), "MXAutogradBackwardEx", self._around_backward),
                ],
                "trainers": [
                    *((Trainer, name, self._around_step) for name in ("step", "update")),
                    *((module, "update", self._around_step) for module in _MODULES),
                ],
                "writes": [(layout.library(), "MXImperativeInvokeEx", self._around_operator)],
                "planners": [(HybridBlock, "_build_cache", self._around_build)],
            }
        )
        self._patches.need("planners", _POOLS)

    def find(self, *, models: bool, trainers: bool) -> None:
        """Find models, trainers or both as they are used; if models are given, find only trainers that update them.

        The search for models pauses while every trained parameter belongs to a known model.
        """
        self._finds_models |= models
        self._finds_trainers |= trainers
        if models:
            self._look_for_models()
        if models or trainers:
            self._patches.need("trainers", _TRAINERS)

    def on_update(self, callback: Callable[[object], None]) -> None:
        """Call `callback` with the trainer after each step of any trainer.

        While the script uses no trainer, a step is a backward pass with what follows, up to the next forward pass.
        """
        self._callbacks.append(callback)
        self._patches.need("trainers", _UPDATES)
        for group in () if self._has_stepped else ("autograd", "executors"):
            self._patches.need(group, _BY_HAND)

    def open_window(self, *, waits: bool = True) -> Phases:
        """Begin to report phases; with `waits`, also read owners."""
        phases = self.steps.open_window(waits=waits)
        self.batches.take()
        self._here = _Thread()
        for group in ("blocks", "executors", "modules", "autograd", "trainers"):
            self._patches.need(group, _WINDOW)
        if not self._by_hand.has_trainer():
            self._patches.need("writes", _WINDOW)
        return phases

    def close_window(self) -> None:
        """Restore MXNet's functions, end open phases, and report no more."""
        self._patches.release(_WINDOW)
        self.steps.close_window()

    def close(self) -> None:
        """Undo all changes."""
        self._callbacks.clear()
        for reason in (_WINDOW, _MODELS, _TRAINERS, _UPDATES, _BY_HAND, _POOLS):
            self._patches.release(reason)

    def _pass_begins(self) -> None:
        """Note that a forward pass begins; without a trainer, the step before it ends here."""
        self.steps.end_update()
        if self._by_hand.step_ended() and os.getpid() == self._pid:
            for callback in self._callbacks:
                callback(self._by_hand)

    def _around_operator(self, original: Replaced) -> Replaced:
        """Begin an update by hand at the first operator after a backward pass that touches a weight or a gradient."""

        def invoke(creator: Any, count: Any, inputs: Any, made: Any, outputs: Any, *more: Any) -> Any:
            phases = self.steps.here()
            if phases is not None and not self.steps.is_updating and self._by_hand.is_pending:
                given = inputs[: count.value]
                if self._by_hand.touches(given, outputs._obj[: made._obj.value] if outputs._obj else ()):  # noqa: SLF001
                    self.steps.begin_update(phases)
            return original(creator, count, inputs, made, outputs, *more)

        return invoke

    def _around_call(self, original: Replaced) -> Replaced:
        def call(block: Block, /, *arguments: Any) -> Any:
            if self._here.calls == 0:
                self._here.layout = None
                self._found(block)
            self._here.calls += 1
            try:
                if self._here.layout is None and isinstance(block, _RNNLayer):
                    self._here.layout = _layout_of(block, arguments)
                if self._here.calls > 1 or (phases := self.steps.here()) is None:
                    return original(block, *arguments)
                counts = autograd.is_recording() and any(block is model for model in self.watched.models())
                result = self._forward(phases, arguments, lambda: original(block, *arguments))
                if counts:
                    self._count(block, arguments)
                return result
            finally:
                self._here.calls -= 1

        return call

    def _around_module(self, original: Replaced) -> Replaced:
        def forward(module: BaseModule, /, *arguments: Any, **named: Any) -> Any:
            given = _in_batches(arguments[0] if arguments else named.get("data_batch"))
            if self._call_begins() and self.steps.phases is not None:
                self._count(module, given)
            return self._call(given, lambda: original(module, *arguments, **named))

        return forward

    def _around_execution(self, original: Replaced) -> Replaced:
        def forward(executor: Executor, /, *arguments: Any, **named: Any) -> Any:
            if self._call_begins():
                self._found_executor(executor)
            if self._here.calls == 0 and self.steps.phases is not None:
                self._count(executor, named)
            return self._call(named, lambda: original(executor, *arguments, **named))

        return forward

    @waits
    def _count(self, model: object, given: object) -> None:
        """Count the first input of a model in training."""
        arrays = list(owners.arrays(given))
        if not arrays or os.getpid() != self._pid:
            return
        first, continues = arrays[0], len(arrays) > 1  # such as a state that an earlier call returned
        is_tokens = np.issubdtype(first.dtype, np.integer) and np.dtype(first.dtype).itemsize >= _TOKEN_BYTES
        self.batches.called(
            id(model),
            first.shape,
            is_tokens=is_tokens,
            part=str(first.context),
            layout=self._here.layout,
            continues=continues,
        )

    def _call_begins(self) -> bool:
        """Return whether a call of a module or an executor is the outermost, and so begins a forward pass."""
        is_outermost = self._here.calls == 0 and not self._here.passes
        if is_outermost:
            self._pass_begins()
        return is_outermost

    def _call(self, given: object, original: Callable[[], Any]) -> Any:
        """Call a module or an executor; the outermost call is a forward phase."""
        self._here.calls += 1
        try:
            if self._here.calls > 1 or (phases := self.steps.here()) is None:
                return original()
            return self._forward(phases, given, original)
        finally:
            self._here.calls -= 1

    def _around_pass(self, original: Replaced) -> Replaced:
        def backward(model: Any, /, *arguments: Any, **named: Any) -> Any:
            self._here.passes += 1
            try:
                phases = self.steps.here()
                if self._here.passes > 1:
                    return original(model, *arguments, **named)
                if phases is None:
                    result = original(model, *arguments, **named)
                else:
                    self.batches.passed()
                    self.steps.end_forward(phases)
                    result = self.steps.within(phases, Phase.BACKWARD, lambda: original(model, *arguments, **named))
                self._by_hand.passed(watches=phases is not None)
                return result
            finally:
                self._here.passes -= 1

        return backward

    def _forward(self, phases: Phases, arguments: object, original: Callable[[], Any]) -> Any:
        """Call a model in a forward phase; the phase ends with the recording scope around the call, if any."""
        return self.steps.forward(phases, arguments, original, stays=self._here.scopes > 0)

    def _around_enter(self, original: Replaced) -> Replaced:
        def enter(scope: Any) -> Any:
            if scope._enter_is_record is True and not self._here.scopes:  # noqa: SLF001
                self._pass_begins()
            self._here.scopes += scope._enter_is_record is True  # noqa: SLF001
            phases = self.steps.here()
            if phases is not None and not phases.waits and self._here.scopes:
                self.steps.begin_forward(phases)
            return original(scope)

        return enter

    def _around_exit(self, original: Replaced) -> Replaced:
        def leave(scope: Any, *error: object) -> Any:
            result = original(scope, *error)
            self._here.scopes = max(0, self._here.scopes - (scope._enter_is_record is True))  # noqa: SLF001
            phases = self.steps.here()
            if phases is not None and not self._here.scopes:
                self.steps.end_forward(phases, wait=not any(error))
            return result

        return leave

    def _around_backward(self, original: Replaced) -> Replaced:
        def backward(*arguments: Any) -> Any:
            phases = self.steps.here()
            if phases is None:
                result = original(*arguments)
            else:
                self.batches.passed()
                self.steps.end_update()
                if not self._here.scopes:
                    self.steps.end_forward(phases)
                result = self.steps.within(phases, Phase.BACKWARD, lambda: original(*arguments))
            self._by_hand.passed(watches=phases is not None)
            return result

        return backward

    def _around_step(self, original: Replaced) -> Replaced:
        def step(trainer: AnyTrainer, /, *arguments: Any, **named: Any) -> Any:
            self._here.steps += 1
            try:
                if self._here.steps > 1:
                    return original(trainer, *arguments, **named)
                if isinstance(trainer, Trainer):
                    self.batch_size = _batch_size(*arguments, **named)
                self._planned()  # waits, and so may raise what the script's own work raised
                self._step_begins(trainer)
                result = self.steps.update(trainer, lambda: original(trainer, *arguments, **named))
            finally:
                self._here.steps -= 1
            if os.getpid() == self._pid:
                for callback in self._callbacks:
                    callback(trainer)
            return result

        return step

    @waits
    def _step_begins(self, trainer: AnyTrainer) -> None:
        self._by_hand.has_stepped()
        if not self._has_stepped:
            self._has_stepped = True
            self._patches.release(_BY_HAND)
        if self._finds_models and isinstance(trainer, BaseModule):
            self.watched.add_module(trainer)
        if self._finds_trainers and (self._finds_models or self.watched.is_updated_by(trainer)):
            self.watched.add_trainer(trainer)
        if self._finds_models:
            if self.watched.is_complete():
                self._patches.release(_MODELS)
            else:
                self._look_for_models()

    def _look_for_models(self) -> None:
        for group in ("blocks", "executors"):
            self._patches.need(group, _MODELS)

    def _around_build(self, original: Replaced) -> Replaced:
        def build(block: HybridBlock, *arguments: Any) -> Any:
            result = original(block, *arguments)
            if ("static_alloc", True) in block._flags and os.getpid() == self._pid:  # noqa: SLF001
                # Its first calls, which come next, fill its pools; the next step ends that.
                mx.nd.waitall()
                self._allocator.maker = PLANNER
                self._patches.need("trainers", _POOLS)
            return result

        return build

    def _planned(self) -> None:
        """Note that a planner has filled its pools, if one was at work."""
        if self._allocator.maker is PLANNER:
            mx.nd.waitall()
            self._allocator.maker = None

    @waits
    def _found(self, block: Block) -> None:
        if self._finds_models and os.getpid() == self._pid and list(block.collect_params().keys()):
            self.watched.add_model(block)

    @waits
    def _found_executor(self, executor: Executor) -> None:
        if self._finds_models and os.getpid() == self._pid and symbols.held(executor):
            self.watched.add_model(executor)


@waits
def _in_batches(batch: Any) -> list[list[Any]]:
    """Return the data and the labels of a batch, or of a list of batches."""
    batches = batch if isinstance(batch, list) else [batch]
    return [[getattr(each, "data", None), getattr(each, "label", None)] for each in batches]


def _layout_of(block: Any, given: object) -> Layout | None:
    """Return where the batch lies in the input of a recurrent layer, or None if nothing says so."""
    first = next(iter(owners.arrays(given)), None)
    axes = str(getattr(block, "_layout", ""))[:2]
    if first is None or len(first.shape) < 2 or "N" not in axes:
        return None
    return Layout(type(block).__name__, int(first.shape[0]), int(first.shape[axes.index("N")]))


def _batch_size(batch_size: object = None, *_: object, **__: object) -> int | None:
    """Return the batch size in a trainer's arguments; 1 is what a trainer is given where the loss is a mean."""
    return batch_size if isinstance(batch_size, int) and batch_size > 1 else None
