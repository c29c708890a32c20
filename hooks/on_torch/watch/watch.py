"""Hooks on modules and optimizers: they place markers in a window and find models and optimizers in training."""

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tbdprof.facts.batches import Batches, Layout
from tbdprof.hooks.keras_objects import named_layers
from tbdprof.hooks.on_torch.session.events import Existing, Mark, Owned, Point
from tbdprof.hooks.on_torch.session.markers import Markers
from tbdprof.hooks.on_torch.watch import owners
from tbdprof.hooks.on_torch.watch.keras_optimizers import KerasOptimizers
from tbdprof.hooks.on_torch.watch.module_calls import (
    Handle,
    Late,
    between_steps,
    in_backward,
    in_transform,
    register_first,
    remove,
    report_calls,
    uncompiled,
)
from tbdprof.hooks.on_torch.watch.watched import Watched
from tbdprof.hooks.patches import Patches, Replaced
from tbdprof.hooks.threads import are_others
from tbdprof.hooks.waiting import waits

if TYPE_CHECKING:  # a memory window needs no more of it than its interface
    from tbdprof.hooks.on_torch.watch.by_hand import ByHand

_WINDOW = "window"  # a reason for which a function is replaced
_BY_HAND = "by hand"  # another
_FRUITLESS = 2  # steps in a row that found nothing new, after which the search for models pauses


@dataclass(frozen=True, slots=True)
class _Named:
    module: weakref.ref[torch.nn.Module]
    name: str
    is_root: bool
    tells: bool  # where the batch lies in its input
    begins: str  # the markers of its calls, by the names of their ranges
    ends: str


class Watch:
    """Hooks that never return anything, so that they never replace a value."""

    def __init__(self, markers: Markers, watched: Watched, by_hand: "ByHand") -> None:
        self.watched = watched
        self.markers = markers
        self.batches = Batches()  # of the open window
        self._named: dict[int, _Named] = {}
        self._calls: list[Handle] = []
        # On all optimizers until `close`: a thread may be running through these hooks when a window begins or ends.
        with between_steps():
            self._steps: list[Handle] = [
                register_optimizer_step_pre_hook(self._step_begins),
                register_optimizer_step_post_hook(self._step_ends),
            ]
        self._reads_owners = False
        self.sees_transforms = False  # a module was called within a function of `torch.func`, in this window
        self._finds_models = self._finds_optimizers = False
        self._fruitless = 0
        self._pauses_after = False  # the search for models, which paused before this window
        self._judged: dict[int, tuple[weakref.ref[Any], int]] = {}  # optimizers, and how many parameters they had
        self._finding_models: list[Handle] = []
        self._finding_optimizers: list[Handle] = []
        self._updates: list[Handle] = []
        self._by_hand = by_hand
        self._passes: list[Handle] = []  # while steps by hand are looked for
        self._callbacks: list[Callable[[object], None]] = []  # called after the steps of Keras's optimizers
        self.keras = KerasOptimizers(self._keras_begins, self._keras_ends)
        self._local = threading.local()
        self._finding = threading.local()
        engine = (torch.autograd, "_engine_run_backward", self._around_backward)
        self._backward = Patches({"engine": [engine] if hasattr(torch.autograd, engine[1]) else []})

    def find(self, *, models: bool, optimizers: bool) -> None:
        """Find models, optimizers or both as they are used; if models are given, find only optimizers that update them.

        A model is a module with parameters that is called from outside any other module and outside the backward pass,
        or a module that holds all of these.
        The search for models adds a small cost to every module call. It pauses while every parameter of every known
        optimizer belongs to a known model, and after steps that found nothing. It resumes at a step of another
        optimizer, or of one with more parameters than before, and in a window that is not complete without it.
        """
        self._judged.clear()
        self._finds_models |= models
        self._finds_optimizers |= optimizers
        self.keras.find()
        if (models or optimizers) and not self._finding_optimizers:
            with between_steps():
                self._finding_optimizers = [register_optimizer_step_pre_hook(self._step_found)]
        if models:
            self._find_models()

    def on_update(self, callback: Callable[[object], None]) -> None:
        """Call `callback` with the optimizer after each step of any optimizer, and with an object after one by hand.

        It is called in forked processes, too.
        """
        self._callbacks.append(callback)
        late = Late()

        @uncompiled
        def after(optimizer: torch.optim.Optimizer, *_: object) -> None:
            if torch.compiler.is_compiling():
                return
            if self._passes:
                self._stop_looking()
            if in_backward():  # a profiler that begins here ends with the backward pass
                late.add(lambda: callback(optimizer))
            else:
                callback(optimizer)

        with between_steps():
            self._updates += [late, register_optimizer_step_post_hook(after)]
        self._by_hand.follow(callback)
        self._backward.need("engine", _BY_HAND)
        self._passes.append(register_first(self._by_hand.forward_begins))

    def _stop_looking(self) -> None:
        """Look no longer for steps by hand: an optimizer has taken one."""
        self._by_hand.has_optimizer = True
        self._backward.release(_BY_HAND)
        remove(self._passes)

    def open_window(self, *, reads_owners: bool) -> None:
        """Turn markers on, with hooks on everything watched that place them; `reads_owners` lets them read owners."""
        self.markers.turn_on()
        self._reads_owners, self.sees_transforms = reads_owners, False
        self._local = threading.local()
        self.batches.take()
        self._backward.need("engine", _WINDOW)
        self._name_modules()
        self._pauses_after = not self._finding_models
        if self._finds_models and not self.watched.is_complete():
            self._find_models()
        self._report_calls()

    def read_owners(
        self,
        point: Point,
        read: Callable[[], Sequence[Owned]],
        find: Callable[[], Sequence[Existing]] = lambda: (),
    ) -> None:
        """Place a marker with owners, and with blocks that perhaps nothing reported.

        If other threads may free them meanwhile, place another marker before they are read.
        """
        if not self.markers.is_on():
            return
        if are_others():
            self.markers.place(Mark(Point.READING))
        self.markers.place(Mark(point, owned=read(), found=find()))

    def close_window(self) -> dict[int, Mark]:
        """Remove the markers' hooks; return the markers placed."""
        self.markers.on = self._reads_owners = False
        self._backward.release(_WINDOW)
        remove(self._calls)
        if self._pauses_after or self._fruitless >= _FRUITLESS:
            remove(self._finding_models)
        self._named = {}
        self.watched.rows.clear()
        return self.markers.take()

    def close(self) -> None:
        """Remove every hook."""
        self._callbacks.clear()
        self._backward.release(_WINDOW)
        self._backward.release(_BY_HAND)
        remove(self._passes)
        with between_steps():
            for handles in (self._calls, self._steps, self._finding_models, self._finding_optimizers, self._updates):
                remove(handles)
        self.keras.close()

    def _name_modules(self) -> None:
        found: dict[int, _Named] = {}
        for prefix, model in self.watched.prefixes():
            for name, module in named_layers(model) or model.named_modules():
                # What torch.compile generated runs as one module.
                is_generated = "_orig_mod" in name or "_orig_mod" in vars(module).get("_modules", ())
                if not is_generated and id(module) not in found:
                    found[id(module)] = self._as_named(module, (prefix + name).removesuffix("."), module is model)
        self._named = found  # in one assignment, because other threads look names up meanwhile

    def _as_named(self, module: torch.nn.Module, name: str, is_root: bool) -> _Named:
        marks = Mark(Point.LAYER, name), Mark(Point.LAYER_END, name)
        return _Named(
            weakref.ref(module), name, is_root, owners.tells_layout(module), *map(self.markers.text_of, marks)
        )

    @uncompiled
    @waits
    def _call_begins(self, module: torch.nn.Module, args: tuple[object, ...]) -> None:
        named = self._name(module)
        if named is None:
            return
        self.sees_transforms = self.sees_transforms or in_transform()
        # A model may not be called itself: a method of its own may call its parts.
        if self._enter() == 0 and not in_backward():
            self.markers.place(Mark(Point.FORWARD, f"forward {named.name}".rstrip(), self._inputs(args)))
            if named.is_root:  # a window may begin within a model's call: then only its layers' calls are seen to begin
                self._local.layout = None
        if named.tells and self._layout() is None:
            self._local.layout = owners.layout_of(module, args)
        self.markers.place_text(named.begins)

    @uncompiled
    @waits
    def _call_ends(self, module: torch.nn.Module, args: tuple[object, ...], *rest: object) -> None:
        named = self._name(module)
        if named is None:
            return
        self.markers.place_text(named.ends)
        if self._leave() == 0 and not in_backward():
            ends = not torch.is_grad_enabled()
            given_by_name = self._inputs(rest[:-1])
            self.markers.place(Mark(Point.FORWARD_END, named.name, given_by_name, ends_forward=ends))
            if not ends:
                self._count(named, args, rest[0] if len(rest) > 1 else {})

    def _count(self, named: _Named, args: tuple[object, ...], given_by_name: object) -> None:
        """Count the first input of a model in training; without a call of the model itself, of its parts."""
        first = owners.first_tensor(args, given_by_name)
        if first is not None and first.dim():
            is_tokens = first.dtype in (torch.int64, torch.int32)
            self.batches.called(
                named.name,
                first.shape,
                is_tokens=is_tokens,
                is_layer=not named.is_root,
                layout=self._layout(),
                continues=owners.has_computed(args, given_by_name),
                times=owners.times_mapped(first) if in_transform() else 1,
            )

    def _layout(self) -> Layout | None:
        found: Layout | None = getattr(self._local, "layout", None)
        return found

    def _around_backward(self, original: Replaced) -> Replaced:
        @uncompiled
        def run(*arguments: Any, **named: Any) -> Any:
            is_outermost = not in_backward()
            if is_outermost:
                self._by_hand.backward_begins(arguments[0] if arguments else ())
            if named.get("accumulate_grad", True):  # not `torch.autograd.grad`, which returns gradients
                self._passed()
            made = original(*arguments, **named)
            if is_outermost:
                self._by_hand.backward_ended()
                self._update_begins()
            return made

        return run

    @waits
    def _update_begins(self) -> None:
        """Place a marker where an update by hand may begin, with the gradients that it is to read."""
        if not self.markers.is_on() or not self._by_hand.is_so():
            return
        if self._reads_owners:
            self.read_owners(Point.UPDATE_BEGIN, lambda: owners.gradients(self.watched.parameters(), self.watched.rows))
        self.markers.place(Mark(Point.BY_HAND, touches=self._by_hand.touched()))

    @waits
    def _passed(self) -> None:
        if self.markers.is_on():
            self.batches.passed()

    def _name(self, module: torch.nn.Module) -> _Named | None:
        if not self.markers.is_on():
            return None
        named = self._named.get(id(module))
        if named is None:
            parts = vars(module).get("_modules")
            compiled = parts.get("_orig_mod") if isinstance(parts, dict) else None  # what torch.compile wraps
            named, module = self._named.get(id(compiled)), module if compiled is None else compiled
        return named if named is not None and named.module() is module else None

    def _inputs(self, given: tuple[object, ...]) -> Sequence[Owned]:
        return owners.inputs(given) if self._reads_owners else ()

    @uncompiled
    def _step_begins(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        # First what the compiler knows: it would compile a step again where what it looked at has changed.
        if torch.compiler.is_compiling():
            return
        if self.markers.on:
            self.batches.update_begins()
        if self._reads_owners:
            self._read_gradients(optimizer)

    @uncompiled
    def _step_ends(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if torch.compiler.is_compiling():
            return
        self._by_hand.has_optimizer = True
        if self.markers.on:
            self.batches.update_ends()
        if self._reads_owners:
            self._read_state(optimizer)

    @waits
    def _read_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        if self._reads(optimizer):
            self.read_owners(Point.UPDATE_BEGIN, lambda: owners.gradients_of(optimizer, self.watched))

    @waits
    def _read_state(self, optimizer: torch.optim.Optimizer) -> None:
        if self._reads(optimizer):
            self.read_owners(Point.UPDATE_END, lambda: owners.state_of(optimizer, self.watched))

    def _keras_begins(self, optimizer: Any) -> None:
        if self._finding_optimizers:
            self._step_found(optimizer)
        self._step_begins(optimizer)

    def _keras_ends(self, optimizer: Any) -> None:
        self._step_ends(optimizer)
        if self._passes:
            self._stop_looking()
        for callback in list(self._callbacks):
            callback(optimizer)

    def _reads(self, optimizer: torch.optim.Optimizer) -> bool:
        return self.markers.is_on() and self._reads_owners and self.watched.knows(optimizer)

    def _report_calls(self) -> None:
        self._calls = report_calls(self._call_begins, self._call_ends)

    def _find_models(self) -> None:
        if not self._finding_models:
            self._finding = threading.local()  # it may have ended within a call
            self._finding_models = report_calls(self._call_found, self._call_ended)
            if self._calls:  # put them after the search: a model that is found gets its marker in the same call
                remove(self._calls)
                self._report_calls()

    @uncompiled
    @waits
    def _call_found(self, module: torch.nn.Module, *_: object) -> None:
        if torch.compiler.is_compiling() or in_backward():
            return
        depth = getattr(self._finding, "depth", 0)
        self._finding.depth = depth + 1
        self.keras.find()
        if depth > 0 or next(module.parameters(), None) is None:
            return
        if self.watched.add_model(module):
            self._fruitless = 0
            if self.markers.is_on():
                self._name_modules()

    @uncompiled
    @waits
    def _call_ended(self, *_: object) -> None:
        if not torch.compiler.is_compiling() and not in_backward():
            self._finding.depth = max(0, getattr(self._finding, "depth", 0) - 1)

    @uncompiled
    @waits
    def _step_found(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        known, before = self._judged.get(id(optimizer), (None, 0))
        parameters = 0
        for group in optimizer.param_groups:
            parameters += len(group["params"])
        is_new = known is None or known() is not optimizer or before != parameters
        if is_new or self._finding_models:
            self._judged[id(optimizer)] = weakref.ref(optimizer), parameters
            self._judge(optimizer, is_new=is_new)

    def _judge(self, optimizer: torch.optim.Optimizer, *, is_new: bool) -> None:
        """Watch an optimizer if it is wanted, and search on for models while its parameters belong to none."""
        wanted = self._finds_optimizers and (self._finds_models or self.watched.is_updated_by(optimizer))
        if wanted and self.watched.add_optimizer(optimizer) and self.markers.is_on() and self._reads_owners:
            self._step_begins(optimizer)
        if not self._finds_models:
            return
        if self.watched.add_holder() and self.markers.is_on():
            self._name_modules()
        self._fruitless = 0 if is_new else self._fruitless + 1
        if self.watched.is_complete() or (self._fruitless >= _FRUITLESS and not self.markers.on):
            remove(self._finding_models)
        else:
            self._find_models()

    def _enter(self) -> int:
        depth: int = getattr(self._local, "depth", 0)
        self._local.depth = depth + 1
        return depth

    def _leave(self) -> int:
        self._local.depth = max(0, getattr(self._local, "depth", 0) - 1)
        depth: int = self._local.depth
        return depth
