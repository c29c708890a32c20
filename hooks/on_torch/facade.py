"""The torch hook: each window is a session of torch's profiler; owners are read at markers inside it.

This module may be imported without torch: imports that need torch are inside functions.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tbdprof.errors import TbdprofError, UnavailableError, UsageError
from tbdprof.facts.windows import OUT_OF_MEMORY
from tbdprof.hooks import FIRST, Facts, Setting
from tbdprof.hooks.facade import Facade, Joined
from tbdprof.hooks.on_torch.importing import import_torch

if TYPE_CHECKING:
    import ctypes

    from tbdprof.hooks.on_torch.watch.watch import Watch

_QUIET = {"KINETO_LOG_LEVEL": "9", "TORCH_CPP_LOG_LEVEL": "ERROR"}
_LATE = "accounting began after torch had allocated: run it with `tbdprof run` to count from the first allocation"
_NO_FLAG = "this build of torch keeps no account of CPU memory"
_UNWATCHED = "torch is not watched"
_SINCE_JOINED = "profile() was called, after torch had been imported"
_SINCE_WINDOW = f"the memory window began: {_NO_FLAG}"


@dataclass(slots=True, kw_only=True)
class _Joined(Joined):
    """What a hook keeps about the process from `prepare` or `attach` until `close`."""

    watch: "Watch"
    flag: "ctypes.c_bool | None"
    flag_before: bool
    threads_before: int
    threads_set: int | None  # None: the choice was left to torch, or to the script
    late: str | None
    put_precision_back: Callable[[], None] | None = None
    process: int = field(default_factory=os.getpid)  # in which the hook joined


class TorchHook(Facade[_Joined]):
    """Reports what torch does; see `tbdprof.hooks.FrameworkHook`.

    For CUDA memory torch reports the size of blocks, for CPU memory the requested size. Memory that torch's allocator
    did not give (numpy's, shared, mapped) is in neither events nor totals. `missing` names weights in such memory, and
    what was shared with other processes.
    """

    name = "torch"
    _title = "torch"

    def __init__(self) -> None:
        super().__init__()
        self._is_first = False  # the environment was set before torch was imported, and nothing has run since

    @property
    def whole_run_peak_bytes(self) -> int | None:
        """Return the CUDA allocator's own peak; None on a CPU, where nothing counts it."""
        if self._joined is None:
            return None
        from tbdprof.hooks.on_torch import devices

        return devices.peak_bytes(self._device())

    @property
    def independent_total(self) -> str | None:
        """Return None for CUDA, and for the CPU if torch counted from its first allocation; else the reason."""
        if self._joined is None:
            return _LATE
        return self._joined.late if self._device() == "cpu" else None

    @property
    def watched_since(self) -> str:
        """Return `FIRST` if torch was imported with its accounting on, or else what came too late."""
        if self._joined is None:
            return _UNWATCHED
        return {None: FIRST, _NO_FLAG: _SINCE_WINDOW}.get(self._joined.late, _SINCE_JOINED)

    def set_environment(self, setting: Setting) -> None:
        """Make torch quiet, and make it start with the requested number of threads."""
        self._is_first |= "torch" not in sys.modules
        threads = {} if setting.threads is None else {"OMP_NUM_THREADS": str(setting.threads)}
        for name, value in {**_QUIET, **threads}.items():
            self._environment.set(name, value)

    def prepare(self, setting: Setting) -> None:
        """Import torch quietly, switch its CPU accounting on, choose device, threads, a GPU's precision and seed."""
        self.set_environment(setting)
        self._join()
        import torch

        from tbdprof.hooks.on_torch import facts, precision

        joined = self._require()
        try:
            device = facts.choose_device(setting.device)
        except TbdprofError:
            self.close()
            raise
        joined.device, joined.last_device = (None if setting.device == "auto" else device), device
        if setting.threads is not None:
            torch.set_num_threads(setting.threads)
            joined.threads_set = setting.threads
        if setting.precision is not None and device != "cpu":
            joined.put_precision_back = precision.choose(setting.precision)
        if setting.seed is not None:
            torch.manual_seed(setting.seed)

    def attach(self) -> None:
        """Switch torch's CPU accounting on and change nothing else."""
        self._join()

    def watch(self, models: Sequence[object], optimizers: Sequence[object], inputs: Sequence[object] = ()) -> None:
        """Name the memory of these; models and optimizers that are not given are found as they are used."""
        watch = self._require().watch
        from tbdprof.hooks.on_torch.watch.given import add_all

        strange = add_all(watch, models, optimizers)
        if strange:
            raise UsageError(f"neither a torch module nor a torch optimizer: {', '.join(strange)}")
        watch.watched.add_inputs(inputs)

    def facts(self) -> Facts:
        """Return torch's version and settings, and what is watched so far."""
        joined = self._require()
        import torch

        from tbdprof.hooks.on_torch import facts, precision

        device = self._device()
        batch_size, batch_size_from = facts.batch_size(joined.watch.watched)
        return Facts(
            framework_version=str(torch.__version__),
            device=device,
            device_name=facts.device_name(device),
            threads=torch.get_num_threads(),
            parameters=facts.parameter_list(joined.watch.watched),
            optimizers=facts.optimizer_list(joined.watch.watched),
            whole_parameters=facts.whole_parameters(joined.watch.watched),
            precision_flags=precision.flags(),
            batch_size=batch_size,
            batch_size_from=batch_size_from,
        )

    def synchronize(self) -> None:
        """Wait for the CUDA device; on the CPU there is nothing to wait for."""
        self._require()
        from tbdprof.hooks.on_torch import devices

        devices.synchronize(self._device())

    def start(self, window: str) -> None:
        """Begin a session of torch's profiler, and install the hooks that place markers."""
        joined = self._require()
        from tbdprof.hooks.on_torch.kernels.window import KernelsWindow
        from tbdprof.hooks.on_torch.memory.window import MemoryWindow, Remains

        self._windows.begin(
            window,
            {
                "memory": lambda: MemoryWindow(joined.watch, counted_from_start=joined.late is None),
                "kernels": lambda: KernelsWindow(joined.watch, self._device()),
                OUT_OF_MEMORY: lambda: Remains(joined.watch),
            },
        )

    def out_of_memory(self, error: BaseException) -> str | None:
        """Return torch's message about the failed request if the error means out of memory."""
        if "torch" not in sys.modules:
            return None
        from tbdprof.hooks.on_torch.out_of_memory import out_of_memory

        return out_of_memory(error)

    def give_back_memory(self) -> str | None:
        """Make torch's allocators release the memory that is not in use."""
        if "torch" not in sys.modules:
            return None
        from tbdprof.hooks.on_torch import devices

        return devices.give_back_memory()

    def _join(self) -> None:
        late = None if self._is_first or "torch" not in sys.modules else _LATE
        try:
            import_torch()
        except UnavailableError:
            self.close()
            raise
        import torch

        from tbdprof.hooks.on_torch.memory.accounting import accounting_flag, count_quietly
        from tbdprof.hooks.on_torch.session.markers import Markers
        from tbdprof.hooks.on_torch.watch.by_hand import ByHand
        from tbdprof.hooks.on_torch.watch.watch import Watch
        from tbdprof.hooks.on_torch.watch.watched import Watched

        watched = Watched()
        flag = accounting_flag()
        self._joined = _Joined(
            watch=Watch(Markers(), watched, ByHand(watched)),
            flag=flag,
            flag_before=flag is not None and flag.value,
            threads_before=torch.get_num_threads(),
            threads_set=None,
            late=_NO_FLAG if flag is None else late,
        )
        if flag is not None:
            count_quietly(flag)

    def _put_back(self, joined: _Joined) -> None:
        joined.watch.close()
        if joined.put_precision_back is not None:
            joined.put_precision_back()
        if joined.flag is not None:
            joined.flag.value = joined.flag_before
        import torch

        if joined.threads_set is not None and torch.get_num_threads() == joined.threads_set:
            torch.set_num_threads(joined.threads_before)

    def _device_of_parameters(self, joined: _Joined) -> str | None:
        return joined.watch.watched.device()

    def _measure(self) -> Any:
        from tbdprof.hooks.on_torch import probe

        is_forked = os.getpid() != self._require().process or _is_forked_by_multiprocessing()
        return probe.measure_apart if is_forked else probe.measure


def _is_forked_by_multiprocessing() -> bool:
    """Return whether `multiprocessing` forked this process."""
    return multiprocessing.parent_process() is not None and multiprocessing.get_start_method(allow_none=True) == "fork"
