"""Fakes of PM sampling: a sampler, cupti-python's modules, and libcupti's functions, with a scripted device."""

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from tbdprof.collect.pm import CuptiError, Decoded, Wanted, statuses

INTERVAL_NS = 100_000


@dataclass
class FakeChip:
    """A device: which metric names it has, how many go into one pass, and what it refuses."""

    chip: str = "GH100"
    has: Callable[[str], bool] = lambda name: True
    room: int = 8
    refuses: Callable[[Wanted], int] = lambda wanted: 0  # status of a configuration
    overflows: int = 0  # decodings that overflow
    no_metric: int = statuses.INVALID_METRIC_NAME  # status for a name it has not
    closing: int = 0  # status of closing
    other_clock: Callable[[], int] = time.monotonic_ns
    pieces: list[Decoded] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)


class FakeSampler:
    """A `Sampler` of a fake chip, which after each start has ten samples from then on."""

    library = "130000"

    def __init__(self, device: FakeChip) -> None:
        self.device = device
        self.chip = device.chip
        self.backend = "a fake"
        self.wanted: Wanted | None = None
        self.begun = 0
        self.left: list[Decoded] = []
        device.calls.append("open")

    def timestamp(self) -> int:
        return self.device.other_clock()

    def passes(self, metrics: Sequence[str], metric_set: str | None = None) -> int:
        if not all(map(self.device.has, metrics)):
            raise CuptiError("add", self.device.no_metric)
        return 1 if len(metrics) <= self.device.room else 2

    def configure(self, wanted: Wanted) -> None:
        status = self.device.refuses(wanted)
        self.device.calls.append(f"configure {wanted.metric_set} {wanted.by_time}")
        if status:
            raise CuptiError("configure", status)
        self.wanted = wanted

    def start(self) -> None:
        assert self.wanted is not None
        self.device.calls.append("start")
        begun = self.device.other_clock()
        start = begun + INTERVAL_NS * np.arange(10)
        values = np.tile(np.arange(10.0)[:, None], (1, len(self.wanted.metrics)))
        self.left = self.device.pieces or [Decoded(start, start + INTERVAL_NS, values)]

    def stop(self) -> None:
        self.device.calls.append("stop")

    def decode(self) -> Decoded:
        if self.device.overflows:
            self.device.overflows -= 1
            raise CuptiError("decode", statuses.OUT_OF_MEMORY)
        wide = 0 if self.wanted is None else len(self.wanted.metrics)
        nothing = Decoded(np.zeros(0, "i8"), np.zeros(0, "i8"), np.zeros((0, wide)))
        return self.left.pop(0) if self.left else nothing

    def close(self) -> None:
        self.device.calls.append("close")
        if self.device.closing:
            raise CuptiError("close", self.device.closing)


class FakeCuptiError(Exception):
    """cupti-python's `cuptiError`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"ERROR ({status})")
        self.status = status


class FakeLibcupti:
    """libcupti's functions as ctypes calls them, on a device with two samples; `fails` maps a function to a status."""

    def __init__(self, fails: dict[str, int] | None = None, *, lacks: tuple[str, ...] = ()) -> None:
        self.fails = fails or {}
        self.lacks = lacks
        self.calls: list[str] = []
        self.sizes: dict[str, int] = {}
        self.names: list[bytes] = []
        self.config: Any = None

    def __getattr__(self, name: str) -> Callable[[Any], int]:
        if not name.startswith("cupti") or name in self.lacks:
            raise AttributeError(name)

        def call(reference: Any) -> int:
            params = reference._obj
            self.calls.append(name)
            if name in self.fails:
                return self.fails[name]
            if hasattr(params, "structSize"):
                self.sizes[name] = params.structSize
            getattr(self, f"_{name}", lambda params: None)(params)
            return 0

        return call

    def _cuptiGetVersion(self, params: Any) -> None:  # noqa: N802
        params.value = 130000

    def _cuptiGetTimestamp(self, params: Any) -> None:  # noqa: N802
        params.value = 77

    def _cuptiDeviceGetChipName(self, params: Any) -> None:  # noqa: N802
        params.chip = b"GH100"

    def _cuptiPmSamplingEnable(self, params: Any) -> None:  # noqa: N802
        params.sampling = 4711

    def _cuptiPmSamplingGetCounterAvailability(self, params: Any) -> None:  # noqa: N802
        if params.availability:
            ctypes.memset(params.availability, 7, params.availability_bytes)
        params.availability_bytes = 16

    def _cuptiProfilerHostInitialize(self, params: Any) -> None:  # noqa: N802
        params.host = 42

    def _cuptiProfilerHostConfigAddMetrics(self, params: Any) -> None:  # noqa: N802
        self.names = list((ctypes.c_char_p * params.count).from_address(params.names))

    def _cuptiProfilerHostGetConfigImageSize(self, params: Any) -> None:  # noqa: N802
        params.config_bytes = 32

    def _cuptiProfilerHostGetNumOfPasses(self, params: Any) -> None:  # noqa: N802
        params.passes = 1 if len(self.names) < 3 else 2

    def _cuptiPmSamplingSetConfig(self, params: Any) -> None:  # noqa: N802
        self.config = {
            name: getattr(params, name) for name in ("sampling", "interval", "trigger", "append", "buffer_bytes")
        }

    def _cuptiPmSamplingGetCounterDataSize(self, params: Any) -> None:  # noqa: N802
        params.image_bytes = 64 * params.slots

    def _cuptiPmSamplingDecodeData(self, params: Any) -> None:  # noqa: N802
        params.stop_reason, params.overflow = 1, 0

    def _cuptiPmSamplingGetCounterDataInfo(self, params: Any) -> None:  # noqa: N802
        params.completed = 2

    def _cuptiPmSamplingCounterDataGetSampleInfo(self, params: Any) -> None:  # noqa: N802
        params.start, params.end = 100 * params.index, 100 * params.index + 100

    def _cuptiProfilerHostEvaluateToGpuValues(self, params: Any) -> None:  # noqa: N802
        values = (ctypes.c_double * params.count).from_address(params.values)
        values[:] = [params.index + place / 10 for place in range(params.count)]


class FakeCollector:
    """cupti-python's `Collector`, with two samples; `enter` is called in each method with its name."""

    def __init__(self, enter: Callable[[str], None]) -> None:
        self.enter = enter
        self.options: dict[str, Any] = {}

    def enable(self) -> None:
        self.enter("enable")

    def configure(self, **options: Any) -> None:
        self.enter("configure")
        self.options = options

    def start(self) -> None:
        self.enter("start")

    def stop(self) -> None:
        self.enter("stop")

    def decode(self, max_samples: int = 10_000) -> list[SimpleNamespace]:
        self.enter("decode")
        wide = len(self.options["metrics"])
        return [
            SimpleNamespace(
                start_timestamp=100 * place, end_timestamp=100 * place + 100, metric_values=[place + 0.5] * wide
            )
            for place in range(2)
        ]

    def disable(self) -> None:
        self.enter("disable")


class FakeHost:
    """cupti-python's `ProfilerHost`, whose configuration is the list of metrics."""

    def __init__(self, chip: str, kind: int, single_pass_metric_set_name: str | None = None) -> None:
        assert (chip, kind) == ("GH100", 1)

    def initialize(self) -> None:
        pass

    def create_config_image(self, metrics: list[str]) -> list[str]:
        return metrics

    def deinitialize(self) -> None:
        pass


def cupti_python(raises: dict[str, BaseException] | None = None) -> SimpleNamespace:
    """Return cupti-python's modules; `raises` says which methods of its collector fail, and how."""

    def enter(name: str) -> None:
        if raises and name in raises:
            raise raises[name]

    def chip(pointer: Any) -> None:
        enter("chip")
        pointer.p_chip_name = "GH100"

    def params() -> SimpleNamespace:
        made = SimpleNamespace()
        made.ptr = made
        return made

    low = SimpleNamespace(
        cuptiError=FakeCuptiError,
        DeviceGetChipNameParams=params,
        DEVICE_GET_CHIP_NAME_PARAMS_STRUCT_SIZE=32,
        device_get_chip_name=chip,
        get_timestamp=lambda: 77,
    )
    sampling = SimpleNamespace(
        Collector=lambda device_index: FakeCollector(enter),
        TriggerMode=SimpleNamespace(GPU_TIME_INTERVAL="time", GPU_SYSCLK_INTERVAL="cycles"),
        HardwareBufferAppendMode=SimpleNamespace(KEEP_OLDEST="oldest"),
    )
    host = SimpleNamespace(
        ProfilerHost=FakeHost,
        ProfilerType=SimpleNamespace(PM_SAMPLING=1),
        get_num_of_passes=lambda image: 1 if len(image) < 3 else 2,
    )
    return SimpleNamespace(cupti=low, pm_sampling=sampling, profiler_host=host, version="13.4.0")
