"""PM sampling with cupti-python, NVIDIA's package, version 13.3 or later."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any

import numpy as np

from tbdprof.collect.pm import CuptiError, Decoded, Wanted, statuses

OLDEST = (13, 3)
# What its methods raise instead of returning a status.
_STATUSES = (
    (PermissionError, statuses.INSUFFICIENT_PRIVILEGES),
    (MemoryError, statuses.OUT_OF_MEMORY),
    (ValueError, statuses.NOT_SUPPORTED),
)


@dataclass(frozen=True, slots=True)
class Modules:
    """The modules of cupti-python that are used."""

    cupti: Any
    pm_sampling: Any
    profiler_host: Any
    version: str


def find() -> Modules | None:
    """Return cupti-python's modules, or None if it is not installed, is too old, or cannot be imported."""
    try:
        version = metadata.version("cupti-python")
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            return None
        cupti, sampling, host = (import_module(f"cupti.{name}") for name in ("cupti", "pm_sampling", "profiler_host"))
    except (ImportError, ValueError, OSError, RuntimeError):  # PackageNotFoundError is an ImportError
        return None
    return Modules(cupti, sampling, host, version)


class CuptiPythonSampler:
    """Samples a device with cupti-python; a `Sampler`."""

    def __init__(self, modules: Modules, device: int) -> None:
        """Open a device's counters; raise CuptiError if it refuses."""
        self._modules = modules
        self._slots = 0
        self._wide = 0
        self._collector = modules.pm_sampling.Collector(device_index=device)
        with self._translated("enable"):
            self._collector.enable()
        self.library = _loaded_version()
        self.backend = f"cupti-python {modules.version}, libcupti {self.library}"
        try:
            with self._translated("device_get_chip_name"):
                self.chip = _chip(modules.cupti, device)
        except CuptiError:
            with suppress(CuptiError):
                self.close()
            raise

    def timestamp(self) -> int:
        """Return the time of CUPTI's clock in nanoseconds."""
        with self._translated("get_timestamp"):
            return int(self._modules.cupti.get_timestamp())

    def passes(self, metrics: Sequence[str], metric_set: str | None = None) -> int:
        """Return how many passes some metrics take together; raise CuptiError for a name that the chip lacks."""
        hosts = self._modules.profiler_host
        host = hosts.ProfilerHost(self.chip, hosts.ProfilerType.PM_SAMPLING, single_pass_metric_set_name=metric_set)
        with self._translated("create_config_image"):
            try:
                host.initialize()
                return int(hosts.get_num_of_passes(host.create_config_image(list(metrics))))
            finally:
                host.deinitialize()

    def configure(self, wanted: Wanted) -> None:
        """Set what to sample, how often, and how many samples there is space for."""
        modes = self._modules.pm_sampling.TriggerMode
        self._slots, self._wide = wanted.slots, len(wanted.metrics)
        with self._translated("configure"):
            self._collector.configure(
                metrics=list(wanted.metrics),
                hardware_buffer_size=wanted.buffer_bytes,
                sampling_interval=wanted.interval,
                trigger_mode=modes.GPU_TIME_INTERVAL if wanted.by_time else modes.GPU_SYSCLK_INTERVAL,
                hw_buffer_append_mode=self._modules.pm_sampling.HardwareBufferAppendMode.KEEP_OLDEST,
                single_pass_metric_set_name=wanted.metric_set,
            )

    def start(self) -> None:
        """Begin to sample."""
        with self._translated("start"):
            self._collector.start()

    def stop(self) -> None:
        """Stop; what is in the buffer can still be decoded."""
        with self._translated("stop"):
            self._collector.stop()

    def decode(self) -> Decoded:
        """Take the complete samples out of the buffer and return them; only a CuptiError reports an overflow."""
        with self._translated("decode"):
            samples = list(self._collector.decode(max_samples=self._slots))
        times = np.array([(each.start_timestamp, each.end_timestamp) for each in samples], "i8").reshape(-1, 2)
        values = np.array([each.metric_values for each in samples], float).reshape(-1, self._wide)
        return Decoded(times[:, 0], times[:, 1], values, full=len(samples) >= self._slots)

    def close(self) -> None:
        """Release everything."""
        with self._translated("disable"):
            self._collector.disable()

    @contextmanager
    def _translated(self, call: str) -> Iterator[None]:
        """Turn the exceptions of cupti-python into CuptiError."""
        try:
            yield
        except self._modules.cupti.cuptiError as error:
            raise CuptiError(call, int(error.status)) from error
        except (PermissionError, MemoryError, ValueError) as error:
            status = next(status for kind, status in _STATUSES if isinstance(error, kind))
            raise CuptiError(call, status, str(error)) from error
        except RuntimeError as error:  # no driver, nvperf's libraries not found, or already sampling
            raise CuptiError(call, _of_text(str(error)), str(error)) from error


def _of_text(text: str) -> int:
    if "nvperf" in text:
        return statuses.NOT_INITIALIZED
    return statuses.INVALID_OPERATION if "already enabled" in text else statuses.UNKNOWN


def _chip(cupti: Any, device: int) -> str:
    params = cupti.DeviceGetChipNameParams()
    params.struct_size = cupti.DEVICE_GET_CHIP_NAME_PARAMS_STRUCT_SIZE
    params.device_index = device
    cupti.device_get_chip_name(params.ptr)
    return str(params.p_chip_name)


def _loaded_version() -> str:
    """Return the number of the loaded libcupti's version, or "" if it does not report one."""
    number = ctypes.c_uint32()
    try:
        status = ctypes.CDLL("libcupti.so.13").cuptiGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return ""
    return "" if status else str(number.value)
