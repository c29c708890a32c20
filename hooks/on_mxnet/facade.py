"""The MXNet hook: its allocator watched from before the first array, phases told by waiting in memory windows alone.

It may be imported while MXNet is not: what imports MXNet is imported within its functions.
"""

import gc
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tbdprof.errors import TbdprofError, UnavailableError, UsageError
from tbdprof.facts.records import Peaks, Strings
from tbdprof.hooks import FIRST, Drained, Facts, Setting
from tbdprof.hooks.environment import Environment
from tbdprof.hooks.on_mxnet import out_of_memory, precision
from tbdprof.hooks.on_mxnet.importing import import_mxnet
from tbdprof.hooks.windows import Windows

if TYPE_CHECKING:
    from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
    from tbdprof.hooks.on_mxnet.watch.watch import Watch

_LATE = "counting began after MXNet had allocated: run it with `tbdprof run` to count from the first allocation"
_UNWATCHED = "MXNet is not watched"
_SINCE_JOINED = "profile() was called, after MXNet had allocated"


@dataclass(slots=True)
class _Joined:
    """What is held of the process from `prepare` or `attach` until `close`."""

    allocator: "Allocator"
    watch: "Watch"
    late: bool
    independent_total: str | None
    device: str | None = None  # None: where the watched parameters are
    last_device: str = "cpu"  # where they were when last looked for, at first where they are expected


class MxnetHook:
    """Reports what MXNet does; see `tbdprof.hooks.FrameworkHook`.

    Memory that MXNet's storage did not give (oneDNN's, cuDNN's, the CUDA context's) is in neither events nor totals.
    """

    name = "mxnet"

    def __init__(self) -> None:
        self._environment = Environment()
        self._joined: _Joined | None = None
        self._windows = Windows()

    @property
    def whole_run_peak_bytes(self) -> int | None:
        """The most bytes there ever were on the device, None where counting began late.

        MXNet tells no peak: this is the largest sum of the sizes it reported, which its own counter is compared with.
        """
        if self._joined is None or self._joined.late:
            return None
        from tbdprof.hooks.on_mxnet.session import layout

        levels = self._joined.allocator.levels
        return max((x.peak_bytes for d, x in levels.items() if layout.device_text(d) == self._device()), default=0)

    @property
    def independent_total(self) -> str | None:
        """None where MXNet's own memory counter has counted from the first allocation on."""
        return _LATE if self._joined is None else self._joined.independent_total

    @property
    def watched_since(self) -> str:
        """From the first allocation on where MXNet had not allocated when its allocator was first watched."""
        if self._joined is None:
            return _UNWATCHED
        return _SINCE_JOINED if self._joined.late else FIRST

    def set_environment(self, setting: Setting) -> None:
        """Set the threads and a GPU's precision, and give numpy back a name that MXNet reads whenever it runs.

        The name stays: it is what it was for twenty years, and arrays of MXNet may outlive the hook.
        """
        vars(np).setdefault("bool", bool)
        if setting.threads is not None:
            self._environment.set("OMP_NUM_THREADS", str(setting.threads))
        for name, value in precision.variables(setting.precision).items():
            self._environment.set(name, value)

    def prepare(self, setting: Setting) -> None:
        """Import MXNet, watch its allocator, have it count, choose device and seed."""
        self.set_environment(setting)
        self._join()
        import mxnet as mx

        from tbdprof.hooks.on_mxnet import facts

        joined = self._require()
        try:
            joined.last_device = facts.choose_device(setting.device)
            joined.device = None if setting.device == "auto" else joined.last_device
        except TbdprofError:
            self.close()
            raise
        if setting.seed is not None:
            mx.random.seed(setting.seed)

    def attach(self) -> None:
        """Watch MXNet's allocator from now on, with the arrays Python can see; change no setting."""
        self._join()

    def watch(self, models: Sequence[object], optimizers: Sequence[object], inputs: Sequence[object] = ()) -> None:
        """Name the memory of these; models and trainers that are not told are found as they are used."""
        watch = self._require().watch
        from mxnet.gluon import Block, Trainer

        strange = [type(each).__name__ for each in models if not isinstance(each, Block)]
        strange += [type(each).__name__ for each in optimizers if not isinstance(each, Trainer)]
        if strange:
            raise UsageError(f"neither a Gluon block nor a Gluon trainer: {', '.join(strange)}")
        for model in models:
            watch.watched.add_model(model)
        for trainer in optimizers:
            watch.watched.add_trainer(trainer)
        watch.watched.add_inputs(list(inputs))
        watch.find(models=not watch.watched.models(), trainers=not watch.watched.trainers())

    def on_update(self, callback: Callable[[object], None]) -> None:
        """Call back with the trainer after each step any trainer takes, until `close`."""
        self._require().watch.on_update(callback)

    def facts(self) -> Facts:
        """Return MXNet's version and settings, and what is watched by now."""
        joined = self._require()
        import mxnet as mx

        from tbdprof.hooks.on_mxnet import facts

        device = self._device()
        return Facts(
            framework_version=str(mx.__version__),
            device=device,
            device_name=facts.device_name(device),
            threads=facts.threads(),
            parameters=facts.parameter_list(joined.watch.watched),
            optimizers=facts.optimizer_list(joined.watch.watched),
            precision_flags=precision.flags(device),
            runs_ahead=True,
        )

    def peaks(self, precisions: Sequence[str]) -> Peaks:
        """Return the device's peaks: looked up for CUDA, measured on the CPU."""
        self._require()
        from tbdprof.hooks import probing
        from tbdprof.hooks.on_mxnet import probe

        return probing.peaks(self._device(), precisions, probe.measure)

    def synchronize(self) -> None:
        """Wait until MXNet's engine has done everything asked of it."""
        self._require()
        import mxnet as mx

        mx.nd.waitall()

    def start(self, window: str) -> None:
        """Wait for what was asked for so far, and begin to follow MXNet's allocator or its engine."""
        joined = self._require()
        from tbdprof.hooks.on_mxnet.kernels.window import KernelsWindow
        from tbdprof.hooks.on_mxnet.memory.window import MemoryWindow

        self._windows.begin(
            window,
            {
                "memory": lambda: MemoryWindow(joined.watch, joined.allocator, self._device(), late=joined.late),
                "kernels": lambda: KernelsWindow(joined.watch, joined.allocator),
            },
        )

    def mark_step(self) -> None:
        """Mark a step's end; in a memory window read all owners there, with all the step's work done."""
        self._windows.mark_step()

    def stop(self) -> None:
        """End the window and put MXNet's functions back."""
        self._windows.stop()

    def drain(self, strings: Strings) -> Drained:
        """Return the last window's spans; of a memory window allocations and owners, too."""
        return self._windows.drain(strings)

    def close(self) -> None:
        """Put back MXNet's functions, its allocator's slots, its profiler, and the environment.

        All of it, whatever is raised on the way.
        """
        with ExitStack() as after:
            after.callback(self._environment.put_back)
            after.callback(self._leave)
            self._windows.stop()

    def out_of_memory(self, error: BaseException) -> str | None:
        """Return MXNet's sentence about what it could not allocate, if the error means out of memory."""
        return out_of_memory.said(error)

    def give_back_memory(self) -> str | None:
        """Empty the pools of MXNet's devices."""
        mx = sys.modules.get("mxnet")
        if mx is None:
            return None
        gc.collect()
        try:
            for number in range(mx.context.num_gpus()):
                mx.gpu(number).empty_cache()
        except mx.base.MXNetError as error:
            return str(error).partition("\n")[0]
        return None

    def _join(self) -> None:
        try:
            import_mxnet()
        except UnavailableError:
            self.close()
            raise
        from tbdprof.hooks.on_mxnet.memory import counter
        from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
        from tbdprof.hooks.on_mxnet.session import layout, profiler
        from tbdprof.hooks.on_mxnet.watch.watch import Watch

        allocator = Allocator()
        late = not layout.is_untouched()
        try:
            if not late:
                profiler.refuse_a_running_profiler()
            allocator.install()
            layout.prove_storage()
        except TbdprofError:
            allocator.remove()
            self.close()
            raise
        reason = _LATE if late else counter.arm(allocator)
        self._joined = _Joined(allocator, Watch(allocator), late, reason)

    def _leave(self) -> None:
        joined, self._joined = self._joined, None
        if joined is None:
            return
        joined.watch.close()
        if joined.allocator.counters:
            from tbdprof.hooks.on_mxnet.memory import counter

            counter.disarm()
        joined.allocator.remove()

    def _require(self) -> _Joined:
        if self._joined is None:
            raise UsageError("the MXNet hook is used before prepare() or attach(), or after close()")
        return self._joined

    def _device(self) -> str:
        joined = self._require()
        if joined.device is not None:
            return joined.device
        from tbdprof.hooks.on_mxnet import facts

        # Kept, for the parameters may be gone where the loop has ended.
        joined.last_device = facts.device_of(joined.watch.watched) or joined.last_device
        return joined.last_device
