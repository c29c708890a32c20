"""The MXNet hook: it watches the allocator from before the first array; only in memory windows it waits for phases.

MXNet runs ahead of Python, so the hook finds the phase of an allocation by waiting for MXNet at the edges of phases.
This module may be imported without MXNet: imports that need MXNet are inside functions.
"""

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tbdprof.errors import TbdprofError, UnavailableError
from tbdprof.hooks import FIRST, Facts, Setting
from tbdprof.hooks.facade import Facade, Joined
from tbdprof.hooks.on_mxnet import out_of_memory, precision
from tbdprof.hooks.on_mxnet.importing import import_mxnet

if TYPE_CHECKING:
    from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
    from tbdprof.hooks.on_mxnet.watch.makers import Makers
    from tbdprof.hooks.on_mxnet.watch.watch import Watch

_LATE = "counting began after MXNet had allocated: run it with `tbdprof run` to count from the first allocation"
_UNWATCHED = "MXNet is not watched"
_SINCE_JOINED = "profile() was called, after MXNet had allocated"


@dataclass(slots=True, kw_only=True)
class _Joined(Joined):
    """What a hook keeps about the process from `prepare` or `attach` until `close`."""

    allocator: "Allocator"
    makers: "Makers"
    watch: "Watch"
    late: bool
    independent_total: str | None


class MxnetHook(Facade[_Joined]):
    """Reports what MXNet does; see `tbdprof.hooks.FrameworkHook`.

    Memory that MXNet's storage manager did not give (oneDNN's, cuDNN's, the CUDA context's) is in neither events nor
    totals.
    """

    name = "mxnet"
    _title = "MXNet"

    @property
    def whole_run_peak_bytes(self) -> int | None:
        """Return the most bytes that were ever live on the run's devices, or None if counting began late.

        MXNet reports no peak. This is the largest sum of the sizes it reported; MXNet's own counter is compared with
        that sum.
        """
        if self._joined is None or self._joined.late:
            return None
        return self._joined.allocator.peak_bytes(gpus=self._device() != "cpu")

    @property
    def independent_total(self) -> str | None:
        """Return None if MXNet's own memory counter has counted from the first allocation on; else the reason."""
        return _LATE if self._joined is None else self._joined.independent_total

    @property
    def watched_since(self) -> str:
        """Return `FIRST` if MXNet had allocated nothing when its allocator was first watched, else what was missed."""
        if self._joined is None:
            return _UNWATCHED
        return _SINCE_JOINED if self._joined.late else FIRST

    def set_environment(self, setting: Setting) -> None:
        """Set the threads and a GPU's precision, and give numpy back a name that MXNet reads whenever it runs.

        The name is never removed: older versions of numpy have it, and arrays of MXNet may outlive the hook.
        """
        vars(np).setdefault("bool", bool)
        if setting.threads is not None:
            self._environment.set("OMP_NUM_THREADS", str(setting.threads))
        for name, value in precision.variables(setting.precision).items():
            self._environment.set(name, value)

    def prepare(self, setting: Setting) -> None:
        """Import MXNet, watch its allocator, make it count memory, choose device and seed."""
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
        """Watch MXNet's allocator from now on, with the arrays that Python can see; change no setting."""
        self._join()

    def watch(self, models: Sequence[object], optimizers: Sequence[object], inputs: Sequence[object] = ()) -> None:
        """Name the memory of these; models and trainers that are not given are found as they are used."""
        watch = self._require().watch
        from tbdprof.hooks.on_mxnet.watch import given

        given.add(watch.watched, models, optimizers)
        watch.watched.add_inputs(list(inputs))
        watch.find(models=not watch.watched.models(), trainers=not watch.watched.trainers())

    def facts(self) -> Facts:
        """Return MXNet's version and settings, and what is watched so far."""
        joined = self._require()
        import mxnet as mx

        from tbdprof.hooks.on_mxnet import facts
        from tbdprof.hooks.on_mxnet.memory.blocks import stored

        device = self._device()
        return Facts(
            framework_version=str(mx.__version__),
            device=device,
            device_name=facts.device_name(device),
            threads=facts.threads(),
            parameters=facts.parameter_list(joined.watch.watched, stored(joined.allocator.kept())),
            optimizers=facts.optimizer_list(joined.watch.watched),
            precision_flags=precision.flags(device),
            runs_ahead=True,
            batch_size=joined.watch.batch_size,
            batch_size_from="the batch size that Trainer.step is given",
            devices=facts.devices(joined.watch.watched, device, joined.allocator.levels),
        )

    def synchronize(self) -> None:
        """Wait until MXNet's engine has done all requested work."""
        self._require()
        import mxnet as mx

        mx.nd.waitall()

    def start(self, window: str) -> None:
        """Wait for all work requested so far, and begin to follow MXNet's allocator or its engine."""
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

    def out_of_memory(self, error: BaseException) -> str | None:
        """Return MXNet's message about the failed allocation if the error means out of memory."""
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
        from tbdprof.hooks.on_mxnet.memory.choice import new_allocator
        from tbdprof.hooks.on_mxnet.session import layout, profiler
        from tbdprof.hooks.on_mxnet.watch.makers import Makers
        from tbdprof.hooks.on_mxnet.watch.watch import Watch

        allocator = new_allocator()
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
        self._joined = _Joined(
            allocator=allocator, makers=Makers(allocator), watch=Watch(allocator), late=late, independent_total=reason
        )

    def _put_back(self, joined: _Joined) -> None:
        joined.watch.close()
        joined.makers.close()
        if joined.allocator.counters:
            from tbdprof.hooks.on_mxnet.memory import counter

            counter.disarm()
        joined.allocator.remove()

    def _device_of_parameters(self, joined: _Joined) -> str | None:
        from tbdprof.hooks.on_mxnet import facts

        return facts.device_of(joined.watch.watched)

    def _measure(self) -> Any:
        from tbdprof.hooks.on_mxnet import probe

        return probe.measure
