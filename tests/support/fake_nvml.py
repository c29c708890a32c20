"""A fake of pynvml with one card, under the names and with the error classes of the real one.

What the card draws, at which clock and how busy it is are functions of a fake clock's seconds; `refuses` maps a
function to the error it raises, and `lacks` are functions that this pynvml does not have.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from fakes import FakeClock

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, UNKNOWN = 3, 4, 6, 12, 13, 999
WORDS = {3: "Not Supported", 4: "Insufficient Permissions", 6: "Not Found", 12: "NVML Shared Library Not Found"}
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
WALL_OFFSET_NS = 1_700_000_000_000_000_000  # the wall clock less the fake clock
STARTED_NS = 5_000_000_000_000  # the time since the machine was started, less the fake clock
UNSIGNED = 1  # NVML_VALUE_TYPE_UNSIGNED_INT


class FakeNVMLError(Exception):
    """What pynvml raises, with the code in `value`."""

    def __init__(self, value: int) -> None:
        super().__init__(WORDS.get(value, f"error {value}"))
        self.value = value


class FakeCuda:
    """The CUDA driver with devices that have identifiers; `old` lacks the call that knows instances."""

    def __init__(self, *, old: bool = False, bus_id: bool = True) -> None:
        if not old:
            self.cuDeviceGetUuid_v2 = self.cuDeviceGetUuid
        self.bus_id = bus_id

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:  # noqa: N802
        device._obj.value = index
        return 101 if index > 1 else 0

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 2
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:  # noqa: N802
        name.value = b"NVIDIA H200"
        return 0

    def cuDeviceGetAttribute(self, value: Any, number: int, device: Any) -> int:  # noqa: N802
        value._obj.value = {75: 9, 76: 0}.get(number, 1000)
        return 0

    def cuDeviceGetUuid(self, uuid: Any, device: Any) -> int:  # noqa: N802
        uuid.raw = bytes(range(16)) if device.value == 0 else bytes(16)
        return 0

    def cuDeviceGetPCIBusId(self, name: Any, size: int, device: Any) -> int:  # noqa: N802
        name.value = b"0000:1B:00.0"
        return 0 if self.bus_id else 801


class FakeNvml:
    """A driver with one H200, or with an instance of a divided one."""

    NVMLError = FakeNVMLError
    NVML_ERROR_NOT_FOUND = NOT_FOUND
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVML_TEMPERATURE_GPU = 0
    NVML_GPU_UTILIZATION_SAMPLES = 1
    NVML_FI_DEV_POWER_INSTANT = 186
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_GRAPHICS_UTIL, NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_SM_OCCUPANCY = 1, 2, 3
    NVML_GPM_METRIC_ANY_TENSOR_UTIL, NVML_GPM_METRIC_DRAM_BW_UTIL, NVML_GPM_METRIC_FP32_UTIL = 5, 10, 12
    nvmlMemory_v2 = 0x02000028  # noqa: N815

    def __init__(
        self,
        clock: FakeClock | None = None,
        *,
        watts: Callable[[float], float] = lambda s: 500.0,
        clock_mhz: Callable[[float], float] = lambda s: 1980,
        busy: Callable[[float], float] = lambda s: 0.5,
        reasons: Callable[[float], int] = lambda s: 0,
        gpm: Mapping[int, float] | None = None,
        processes: Mapping[int, int | None] | None = None,
        capability: tuple[int, int] = (9, 0),
        instance: int | None = None,
        refuses: Mapping[str, int] | None = None,
        lacks: frozenset[str] = frozenset(),
    ) -> None:
        self.clock = clock or FakeClock()
        self.watts, self.clock_mhz, self.busy, self.reasons = watts, clock_mhz, busy, reasons
        self.gpm = {1: 60.0, 2: 50.0, 3: 40.0, 5: 30.0, 10: 20.0, 12: 10.0} if gpm is None else gpm
        self.processes = processes or {}
        self.capability = capability
        self.instance = instance
        self.refuses = dict(refuses or {})
        self.lacks = lacks
        self.supports_gpm = True
        self.busy_period_us = 200_000
        self.wall_error_us = 0
        self.opened = self.shut = 0
        self.calls: list[str] = []
        self.buffers: dict[str, float] = {}
        self.freed: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        """Refuse a function, or do not have it, as this card was set to."""
        if not name.startswith("nvml") or name == "nvmlMemory_v2":
            return object.__getattribute__(self, name)
        if name in self.lacks:
            raise AttributeError(f"module 'pynvml' has no attribute '{name}'")
        function = object.__getattribute__(self, name)

        def call(*given: Any, **named: Any) -> Any:
            self.calls.append(name)
            if name in self.refuses:
                raise FakeNVMLError(self.refuses[name])
            return function(*given, **named)

        return call

    @property
    def seconds(self) -> float:
        return self.clock.now_ns / 1e9

    def wall(self) -> int:
        return self.clock.now_ns + WALL_OFFSET_NS

    def started(self) -> int:
        return self.clock.now_ns + STARTED_NS

    def nvmlInit(self) -> None:  # noqa: N802
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.shut += 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != ("GPU-" if self.instance is None else "MIG-") + UUID:
            raise FakeNVMLError(NOT_FOUND)
        return "card" if self.instance is None else "instance"

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> str:  # noqa: N802
        assert bus_id == "0000:1B:00.0"
        return "card"

    def nvmlDeviceGetIndex(self, handle: str) -> int:  # noqa: N802
        assert handle == "card"
        return 3

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:  # noqa: N802
        return [int(self.instance is not None)] * 2

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> str:  # noqa: N802
        assert handle == "instance"
        return "card"

    def nvmlDeviceGetGpuInstanceId(self, handle: str) -> int | None:  # noqa: N802
        return self.instance

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:  # noqa: N802
        return self.capability

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        """Return millijoules: the power summed over pieces of 10 ms, from a driver that was loaded long ago."""
        assert handle == "card"
        pieces = round(self.seconds * 100)
        return 10**9 + round(sum(self.watts((piece + 0.5) / 100) for piece in range(pieces)) * 10)

    def nvmlDeviceGetFieldValues(self, handle: str, fields: list[int]) -> list[Any]:  # noqa: N802
        assert (handle, fields) == ("card", [186])
        value = SimpleNamespace(uiVal=round(self.watts(self.seconds) * 1000))
        return [SimpleNamespace(nvmlReturn=0, valueType=UNSIGNED, value=value)]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802
        return round(self.watts(self.seconds) * 1000)

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:  # noqa: N802
        return round(self.clock_mhz(self.seconds)) if kind == self.NVML_CLOCK_SM else 3201

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> int:  # noqa: N802
        return 1980

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:  # noqa: N802
        return self.reasons(self.seconds)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # noqa: N802
        return self.reasons(self.seconds)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:  # noqa: N802
        return 61

    def nvmlDeviceGetTemperatureV(self, handle: str, sensor: int) -> int:  # noqa: N802
        return 62

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int | None = None) -> Any:  # noqa: N802
        assert handle == ("card" if self.instance is None else "instance")
        if version is None:
            return SimpleNamespace(total=1000, used=350)
        return SimpleNamespace(total=1000, used=300, reserved=50)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: str) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes.items()]

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: str) -> list[Any]:  # noqa: N802
        return []

    def nvmlDeviceGetSamples(self, handle: str, kind: int, last_us: int) -> tuple[int, list[Any]]:  # noqa: N802
        """Return the samples after a time, one at every whole period; the ring keeps a hundred."""
        if self.instance is not None:
            raise FakeNVMLError(NOT_SUPPORTED)
        newest = self.wall() // 1000 // self.busy_period_us
        times = [period * self.busy_period_us for period in range(newest - 99, newest + 1)]
        newer = [at for at in times if at + self.wall_error_us > last_us]
        if not newer:
            raise FakeNVMLError(NOT_FOUND)
        return UNSIGNED, [
            SimpleNamespace(timeStamp=at + self.wall_error_us, sampleValue=SimpleNamespace(uiVal=self._percent(at)))
            for at in newer
        ]

    def _percent(self, wall_us: int) -> int:
        return round(100 * self.busy(wall_us / 1e6 - WALL_OFFSET_NS / 1e9))

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:  # noqa: N802
        if self.instance is not None:
            raise FakeNVMLError(NOT_SUPPORTED)
        return SimpleNamespace(gpu=round(100 * self.busy(self.seconds)))

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> Any:  # noqa: N802
        assert handle == "card"
        return SimpleNamespace(isSupportedDevice=int(self.supports_gpm))

    def nvmlGpmSampleAlloc(self) -> str:  # noqa: N802
        name = f"buffer {len(self.buffers)}"
        self.buffers[name] = -1.0
        return name

    def nvmlGpmSampleFree(self, buffer: str) -> None:  # noqa: N802
        self.freed.append(buffer)

    def nvmlGpmSampleGet(self, handle: str, buffer: str) -> str:  # noqa: N802
        assert self.instance is None
        self.buffers[buffer] = self.seconds
        return buffer

    def nvmlGpmMigSampleGet(self, handle: str, instance: int, buffer: str) -> str:  # noqa: N802
        assert (handle, instance) == ("card", self.instance)
        self.buffers[buffer] = self.seconds
        return buffer

    def nvmlGpmMetricsGet(self, asked: Any) -> Any:  # noqa: N802
        """Fill in the figures; samples less than 100 ms apart read as zeros, and 3 says that one is not supported."""
        assert asked.version == 1
        apart = self.buffers[asked.sample2] - self.buffers[asked.sample1]
        assert apart > 0
        for metric in asked.metrics[: asked.numMetrics]:
            metric.nvmlReturn = 0 if metric.metricId in self.gpm else NOT_SUPPORTED
            metric.value = self.gpm.get(metric.metricId, 0.0) if apart >= 0.1 else 0.0
        return asked

    def c_nvmlGpmMetricsGet_t(self) -> Any:  # noqa: N802
        empty = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(98)]
        return SimpleNamespace(version=0, numMetrics=0, sample1=None, sample2=None, metrics=empty)
