"""The TensorFlow hook: each window is a session of TensorFlow's profiler; owners are read inside it.

In a memory window TensorFlow's allocator reports every block. This module may be imported without TensorFlow: imports
that need TensorFlow are inside functions.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tbdprof.errors import TbdprofError, UnavailableError, UsageError
from tbdprof.facts.batches import LEAST_WITH_A_REST
from tbdprof.hooks import FIRST, Facts, Setting
from tbdprof.hooks.facade import Facade, Joined
from tbdprof.hooks.keras_objects import OF_FIT, batch_size_of_fit
from tbdprof.hooks.on_tensorflow import out_of_memory
from tbdprof.hooks.on_tensorflow.importing import import_tensorflow, quiet
from tbdprof.hooks.windows import Window

if TYPE_CHECKING:
    from tbdprof.hooks.on_tensorflow.memory.follower import Follower
    from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
    from tbdprof.hooks.on_tensorflow.watch.watch import Watch

# Every block through the allocator that GPUs have, which reports each; and no talk of how TensorFlow was built.
_EVERY_BLOCK = {"TF_CPU_ALLOCATOR_USE_BFC": "1"}
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
_LATE = (
    "counting began after TensorFlow had allocated: run it with `tbdprof run`, or call "
    '`tbdprof.prepare("tensorflow")` before TensorFlow is imported, to count from the first allocation'
)
_UNWATCHED = "TensorFlow is not watched"
_SINCE_JOINED = "profile() was called, after TensorFlow had allocated"


@dataclass(slots=True, kw_only=True)
class _Joined(Joined):
    """What a hook keeps about the process from `prepare` or `attach` until `close`."""

    watch: "Watch"
    graphs: "Graphs"
    follower: "Follower | None"  # None: TensorFlow had allocated before
    put_precision_back: Callable[[], None] | None = None


class TensorflowHook(Facade[_Joined]):
    """Reports what TensorFlow does; see `tbdprof.hooks.FrameworkHook`.

    Memory that TensorFlow's allocator did not give (oneDNN's and cuDNN's own, the CUDA context's, XLA's code) is in
    neither events nor totals.
    """

    name = "tensorflow"
    _title = "TensorFlow"

    @property
    def whole_run_peak_bytes(self) -> int | None:
        """Return the allocator's own peak, or None if it keeps none."""
        if self._joined is None:
            return None
        from tbdprof.hooks.on_tensorflow.memory import allocator

        return allocator.peak_bytes(self._device())

    @property
    def independent_total(self) -> str | None:
        """Return None if every block is reported: followed from the first, or listed by a GPU's allocator; else why."""
        if self._joined is None or (self._joined.follower is None and not self._lists_blocks()):
            return _LATE
        return None

    @property
    def watched_since(self) -> str:
        """Return `FIRST` if TensorFlow had not begun when it was joined, or else what came too late."""
        if self._joined is None:
            return _UNWATCHED
        return _SINCE_JOINED if self._joined.follower is None else FIRST

    def set_environment(self, setting: Setting) -> None:
        """Make TensorFlow quiet, and make it start with an allocator that reports every block."""
        for name, value in {**_EVERY_BLOCK, **_QUIET}.items():
            self._environment.set(name, value)

    def prepare(self, setting: Setting) -> None:
        """Import TensorFlow quietly, follow its allocator, choose device, threads and seed."""
        self.set_environment(setting)
        self._import()
        import keras

        from tbdprof.hooks.on_tensorflow import facts, precision

        has_begun = _has_begun()
        try:
            with quiet():
                device = facts.choose_device(setting.device)
                if setting.threads is not None:
                    facts.set_threads(setting.threads)
                self._join(follows=setting.follows and not has_begun)
                if setting.threads is not None:
                    _begin()  # else a script may want to choose threads or devices itself, which it no longer could
        except TbdprofError:
            self.close()
            raise
        joined = self._require()
        joined.device, joined.last_device = (None if setting.device == "auto" else device), device
        if setting.precision is not None and device != "cpu":
            joined.put_precision_back = precision.choose(setting.precision)
        if setting.seed is not None:
            keras.utils.set_random_seed(setting.seed)

    def attach(self) -> None:
        """Join TensorFlow as it is: what it allocated before, and its choice of allocator, stay as they are."""
        self._import()
        self._join(follows=False)

    def watch(self, models: Sequence[object], optimizers: Sequence[object], inputs: Sequence[object] = ()) -> None:
        """Name the memory of these; a compiled Keras model brings its optimizer; what is not given is searched for."""
        watch = self._require().watch
        from tbdprof.hooks.on_tensorflow.watch.watch import add_all

        strange = add_all(watch, models, optimizers)
        if strange:
            raise UsageError(f"neither a layer or module of TensorFlow nor a Keras optimizer: {', '.join(strange)}")
        watch.watched.add_inputs(inputs)

    def facts(self) -> Facts:
        """Return TensorFlow's version and settings, and what is watched so far."""
        joined = self._require()
        import tensorflow as tf

        from tbdprof.hooks.on_tensorflow import facts

        joined.watch.look()
        device = self._device()
        return Facts(
            framework_version=str(tf.__version__),
            device=device,
            device_name=facts.device_name(device),
            threads=facts.threads(),
            parameters=facts.parameter_list(joined.watch.watched),
            optimizers=facts.optimizer_list(joined.watch.watched),
            precision_flags=facts.settings(),
            batch_size=batch_size_of_fit(joined.watch.watched.models(), LEAST_WITH_A_REST),
            batch_size_from=OF_FIT,
        )

    def synchronize(self) -> None:
        """Wait until the device has done all requested work."""
        joined = self._require()
        from tensorflow.python.eager import context

        context.async_wait()
        if self._device() != "cpu":
            import tensorflow as tf

            tf.test.experimental.sync_devices()
        if joined.follower is not None:
            joined.follower.awaited()

    def start(self, window: str) -> None:
        """Begin a session of TensorFlow's profiler."""
        joined = self._require()
        from tbdprof.hooks.on_tensorflow.memory.window import MemoryWindow

        if joined.follower is not None:
            joined.follower.end()
        followed = joined.follower.blocks if joined.follower is not None else {}
        outside = joined.follower.outside if joined.follower is not None else frozenset[int]()
        self._windows.begin(
            window,
            {
                "memory": lambda: MemoryWindow(joined.watch, joined.graphs, self._device(), followed, outside),
                "kernels": lambda: _kernels_window(joined),
            },
        )

    def out_of_memory(self, error: BaseException) -> str | None:
        """Return TensorFlow's message about the failed allocation if the error means out of memory."""
        return out_of_memory.said(error)

    def give_back_memory(self) -> str | None:
        """Return that TensorFlow keeps all the memory of a GPU that it ever took, or None without a GPU."""
        tf = sys.modules.get("tensorflow")
        if tf is None or not tf.config.list_physical_devices("GPU"):
            return None
        return "TensorFlow gives a GPU's memory back only where its process ends"

    def _import(self) -> None:
        try:
            with quiet():
                import_tensorflow()
        except UnavailableError:
            self.close()
            raise

    def _join(self, *, follows: bool) -> None:
        from tbdprof.hooks.on_tensorflow.memory.follower import Follower
        from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
        from tbdprof.hooks.on_tensorflow.watch.watch import Watch

        graphs = Graphs()
        self._joined = _Joined(watch=Watch(graphs.watch), graphs=graphs, follower=Follower() if follows else None)
        graphs.begin()

    def _put_back(self, joined: _Joined) -> None:
        with ExitStack() as after:
            after.callback(joined.graphs.end)
            after.callback(joined.watch.close)
            if joined.put_precision_back is not None:
                after.callback(joined.put_precision_back)
            if joined.follower is not None:
                joined.follower.end()

    def _lists_blocks(self) -> bool:
        from tbdprof.hooks.on_tensorflow.memory import allocator

        return bool(allocator.levels(self._device()))

    def _device_of_parameters(self, joined: _Joined) -> str | None:
        from tbdprof.hooks.on_tensorflow import facts

        return facts.device_of(joined.watch.watched)

    def _measure(self) -> Any:
        from tbdprof.hooks.on_tensorflow import probe

        return probe.measure


def _kernels_window(joined: _Joined) -> "Window":
    from tbdprof.hooks.on_tensorflow.kernels.window import KernelsWindow

    return KernelsWindow(joined.watch, joined.graphs)


def _has_begun() -> bool:
    """Return whether TensorFlow has created its devices, and with them its allocators."""
    from tensorflow.python.eager import context

    return bool(context.context()._initialized)  # noqa: SLF001 - nothing else shows it without beginning


def _begin() -> None:
    """Make TensorFlow create its devices."""
    from tensorflow.python.eager import context

    context.ensure_initialized()
