"""One device as NVML, the driver's management library, knows it, and the values that it reports for an instant.

NVML reports most values for a whole card. For an instance of a divided card (MIG) it reports only memory, processes and
GPM figures. The functions here raise what NVML raises: the sampler reads each value on its own and keeps the reason of
a refusal.
"""

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tbdprof.collect.gpu import cuda_driver
from tbdprof.collect.gpu.cuda_driver import Identity
from tbdprof.errors import UnavailableError
from tbdprof.facts import counters
from tbdprof.facts.keys import ReasonFor

INSTANT = -1
AVERAGED_NS = (
    1_000_000_000  # nvmlDeviceGetPowerUsage: "averaged over 1 sec interval" on Ampere (except GA100) and newer
)
LAST_INSTANT = (8, 0)  # compute capability of GA100, the last for which that call gives the power of an instant
# c_nvmlValue_t by nvmlValueType_t, in its order.
VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

Figures = Iterator[tuple[str, float]]  # counter and value


@dataclass(frozen=True, slots=True)
class Card:
    """The handles to read: `instance` is what the process computes on, `whole` its card; mostly they are the same."""

    nvml: Any  # pynvml, or its replacement
    instance: Any
    whole: Any
    gpu_instance: int | None = None  # number of the GPU instance of a divided card; None if not divided

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """Return the errors a call may raise: a refusal, a function that pynvml or the driver lacks, another layout."""
        return (*faults(self.nvml), TypeError, ValueError, ctypes.ArgumentError)


def faults(nvml: Any) -> tuple[type[Exception], ...]:
    """Return the errors of NVML calls if the driver refuses, or if pynvml has no such function."""
    return (nvml.NVMLError, AttributeError, OSError)


def open_card(index: int, nvml: Any = None, cuda: Any = None) -> Card:
    """Begin to use NVML for a device by the framework's number; `nvml` and `cuda` can replace the libraries.

    If that is not possible, raise UnavailableError and leave nothing open.
    """
    nvml = _pynvml() if nvml is None else nvml
    identity = cuda_driver.identity(index, cuda)
    try:
        nvml.nvmlInit()
    except faults(nvml) as error:
        raise UnavailableError(f"the NVIDIA driver does not answer: {error}") from error
    try:
        return _find(nvml, identity)
    except faults(nvml) as error:
        shut(nvml)
        raise UnavailableError(f"the NVIDIA driver does not report on this device: {error}") from error
    except UnavailableError:
        shut(nvml)
        raise


def shut(nvml: Any) -> None:
    """End the use of NVML."""
    with suppress(*faults(nvml)):
        nvml.nvmlShutdown()


def _pynvml() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise UnavailableError(f"nvidia-ml-py is not installed: {error}") from error
    return pynvml


def _find(nvml: Any, identity: Identity) -> Card:
    """Return the device with an identifier; NVML's order of devices is not CUDA's."""
    with suppress(nvml.NVMLError):
        return _undivided(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{identity.uuid}"))
    with suppress(nvml.NVMLError):
        handle = nvml.nvmlDeviceGetHandleByUUID(f"MIG-{identity.uuid}")
        whole = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        return Card(nvml, handle, whole, int(nvml.nvmlDeviceGetGpuInstanceId(handle)))
    if identity.bus_id is None:
        raise UnavailableError(f"the NVIDIA driver knows no device {identity.uuid}")
    return _undivided(nvml, nvml.nvmlDeviceGetHandleByPciBusId(identity.bus_id))


def _undivided(nvml: Any, handle: Any) -> Card:
    divided = False
    with suppress(*faults(nvml)):  # cards that cannot be divided refuse this call
        divided = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    if divided:
        raise UnavailableError("the card is divided (MIG), and CUDA does not report which instance this process has")
    return Card(nvml, handle, handle)


def energy(card: Card) -> Figures:
    """Yield the energy since the driver was loaded."""
    yield counters.ENERGY, card.nvml.nvmlDeviceGetTotalEnergyConsumption(card.whole) / 1e3


def sm_clock(card: Card) -> Figures:
    """Yield the clock of the multiprocessors."""
    yield counters.SM_CLOCK, card.nvml.nvmlDeviceGetClockInfo(card.whole, card.nvml.NVML_CLOCK_SM) * 1e6


def most_sm_clock(card: Card) -> Figures:
    """Yield the highest clock of the multiprocessors."""
    yield counters.SM_CLOCK_MAX, card.nvml.nvmlDeviceGetMaxClockInfo(card.whole, card.nvml.NVML_CLOCK_SM) * 1e6


def memory_clock(card: Card) -> Figures:
    """Yield the clock of the memory."""
    yield counters.MEMORY_CLOCK, card.nvml.nvmlDeviceGetClockInfo(card.whole, card.nvml.NVML_CLOCK_MEM) * 1e6


def clock_reasons(card: Card) -> Figures:
    """Yield why the clocks are not higher; drivers before 535 know the call by its older name."""
    nvml = card.nvml
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(card.whole)
    except (nvml.NVMLError, AttributeError):
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card.whole)
    yield counters.THROTTLE, float(bits)


def temperature(card: Card) -> Figures:
    """Yield the temperature of the chip; CUDA 14 removes the older call, and older drivers lack the newer one."""
    nvml = card.nvml
    try:
        celsius = nvml.nvmlDeviceGetTemperatureV(card.whole, nvml.NVML_TEMPERATURE_GPU)
    except (nvml.NVMLError, AttributeError):
        celsius = nvml.nvmlDeviceGetTemperature(card.whole, nvml.NVML_TEMPERATURE_GPU)
    yield counters.TEMPERATURE, float(celsius)


def memory(card: Card) -> Figures:
    """Yield total and used memory, and what the driver reserves if it reports that separately."""
    nvml = card.nvml
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(card.instance, version=nvml.nvmlMemory_v2)
        yield counters.DEVICE_RESERVED, float(info.reserved)
    except (nvml.NVMLError, AttributeError):
        info = nvml.nvmlDeviceGetMemoryInfo(card.instance)
    yield counters.DEVICE_TOTAL, float(info.total)
    yield counters.DEVICE_USED, float(info.used)


def processes(card: Card) -> Figures:
    """Yield the memory used by this process and by others; raise UnavailableError if the driver's list lacks it."""
    used = _by_process(card)
    own = os.getpid()
    if own not in used:
        raise UnavailableError(
            f"the driver lists {len(used)} processes on the device, and none under this one's number: "
            "in a container they have others"
        )
    if None in used.values():
        raise UnavailableError("the driver does not report how much memory each process uses")
    yield counters.PROCESS_USED, float(used.pop(own) or 0)
    yield counters.OTHERS_USED, float(sum(filter(None, used.values())))


def _by_process(card: Card) -> dict[int, int | None]:
    """Return bytes by process (None: not reported); one that computes and draws is listed twice, with equal values."""
    nvml = card.nvml
    try:
        listed = list(nvml.nvmlDeviceGetComputeRunningProcesses_v3(card.instance))
    except (nvml.NVMLError, AttributeError):
        listed = list(nvml.nvmlDeviceGetComputeRunningProcesses_v2(card.instance))
    with suppress(*faults(nvml)):  # most of these cards draw nothing, and an instance refuses this call
        listed += nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(card.instance)
    return {int(each.pid): each.usedGpuMemory for each in listed}


class Power:
    """The power that a card draws: at an instant if the driver reports that, else averaged over the last second."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._reports_instant = True
        self._length_ns: int | None = None

    def read(self, now_ns: int) -> tuple[float, int]:
        """Return watts, and the start of the averaging time (-1 for the power of an instant)."""
        if self._reports_instant:
            watts = self._instant()
            if watts is not None:
                return watts, INSTANT
            self._reports_instant = False
        watts = self._card.nvml.nvmlDeviceGetPowerUsage(self._card.whole) / 1e3
        length = self._averaged_ns()
        return watts, now_ns - length if length else INSTANT

    def _instant(self) -> float | None:
        nvml = self._card.nvml
        try:
            (field,) = nvml.nvmlDeviceGetFieldValues(self._card.whole, [nvml.NVML_FI_DEV_POWER_INSTANT])
        except self._card.faults:
            return None
        if field.nvmlReturn or not 0 <= field.valueType < len(VALUES):
            return None
        return float(getattr(field.value, VALUES[field.valueType])) / 1e3 or None

    def _averaged_ns(self) -> int:
        if self._length_ns is None:
            capability = tuple(self._card.nvml.nvmlDeviceGetCudaComputeCapability(self._card.whole))
            self._length_ns = AVERAGED_NS if capability > LAST_INSTANT else 0
        return self._length_ns


# Readings of an instant, by the path under which `missing` holds the reason of a refusal.
EACH_TICK: Mapping[ReasonFor, Callable[[Card], Figures]] = {
    ReasonFor.ENERGY_COUNTER: energy,
    ReasonFor.SM_CLOCK: sm_clock,
    ReasonFor.MEMORY_CLOCK: memory_clock,
    ReasonFor.CLOCK_REASONS: clock_reasons,
}
MEMORY: Mapping[ReasonFor, Callable[[Card], Figures]] = {
    ReasonFor.DEVICE_MEMORY: memory,
    ReasonFor.PROCESS_MEMORY: processes,
}
SLOWLY: Mapping[ReasonFor, Callable[[Card], Figures]] = {
    ReasonFor.TEMPERATURE: temperature,
    ReasonFor.MOST_SM_CLOCK: most_sm_clock,
}
