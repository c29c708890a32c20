"""What NVML reports for intervals of time: how busy the device was, and GPM's figures (Hopper and later).

GPM reads hardware counters into a sample. Figures are computed from two samples and hold for the time between them.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tbdprof.collect.gpu.nvml_card import INSTANT, Card
from tbdprof.errors import UnavailableError
from tbdprof.facts import counters

Row = tuple[str, int, float, int]  # counter, time, value, start (-1 for an instant)
Clock = Callable[[], int]

TRUSTED_NS = 10_000_000_000  # a driver's time stamp further from now is not on this machine's clock
PERIOD_NS = 200_000_000  # interval between GPM samples
LEAST_NS = 100_000_000  # "should be > 100 ms apart" (NVML): closer samples give zeros
GPM = {
    counters.GPM_BUSY: "NVML_GPM_METRIC_GRAPHICS_UTIL",
    counters.GPM_SM_ACTIVE: "NVML_GPM_METRIC_SM_UTIL",
    counters.GPM_OCCUPANCY: "NVML_GPM_METRIC_SM_OCCUPANCY",
    counters.GPM_TENSOR: "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    counters.GPM_DRAM: "NVML_GPM_METRIC_DRAM_BW_UTIL",
    counters.GPM_FP32: "NVML_GPM_METRIC_FP32_UTIL",
}


class DriverBusy:
    """Drains the driver's own samples of utilization.

    `others` are the clocks, in nanoseconds, that its time stamps may use: the wall clock in older drivers, the time
    since the machine started in newer ones.
    """

    def __init__(self, card: Card, clock: Clock, others: Sequence[Clock]) -> None:
        self._card = card
        self._clock = clock
        self._others = others
        self._offsets_ns: list[int] = []
        self._offset_ns = 0
        self._last_us = 0
        self._has_samples = True

    def begin(self) -> None:
        """Discard what the driver sampled before, and read the offsets of the clocks."""
        self._offsets_ns = [self._clock() - other() for other in self._others]
        if self._has_samples:
            self._drained()

    def read(self) -> list[Row]:
        """Return what was sampled since the last call; without samples, the figure of the last period."""
        if self._has_samples:
            before, drained = self._last_us, self._drained()
            times = [before, *(at_us for at_us, _ in drained)]
            return [
                (counters.DRIVER_BUSY, self._time_ns(at_us), value, self._time_ns(start) if start else INSTANT)
                for start, (at_us, value) in zip(times, drained, strict=False)
            ]
        rates = self._card.nvml.nvmlDeviceGetUtilizationRates(self._card.whole)
        return [(counters.DRIVER_BUSY, self._clock(), rates.gpu / 100, INSTANT)]

    def _drained(self) -> list[tuple[int, float]]:
        nvml = self._card.nvml
        try:
            _, listed = nvml.nvmlDeviceGetSamples(self._card.whole, nvml.NVML_GPU_UTILIZATION_SAMPLES, self._last_us)
        except self._card.faults as error:
            if getattr(error, "value", None) != nvml.NVML_ERROR_NOT_FOUND:  # NOT_FOUND means nothing new
                self._has_samples = False
            return []
        samples = sorted((int(each.timeStamp), each.sampleValue.uiVal / 100) for each in listed)
        samples = [(at_us, value) for at_us, value in samples if at_us > self._last_us and value <= 1]
        if samples and not self._has_clock(samples[-1][0]):
            self._has_samples = False
            return []
        self._last_us = samples[-1][0] if samples else self._last_us
        return samples

    def _has_clock(self, newest_us: int) -> bool:
        """Choose the clock that puts the newest sample closest to now; return whether it is close enough."""
        now = self._clock()
        age_ns, self._offset_ns = min((abs(newest_us * 1000 + offset - now), offset) for offset in self._offsets_ns)
        return age_ns <= TRUSTED_NS

    def _time_ns(self, driver_us: int) -> int:
        return driver_us * 1000 + self._offset_ns


class Gpm:
    """GPM's figures of a device or an instance; raises UnavailableError if the card or its driver has none."""

    def __init__(self, card: Card, clock: Clock) -> None:
        self._card = card
        self._clock = clock
        self._older_ns: int | None = None
        self._buffers: list[Any] = []
        nvml = card.nvml
        try:
            if not nvml.nvmlGpmQueryDeviceSupport(card.whole).isSupportedDevice:
                raise UnavailableError("the card has no GPM figures: Hopper and later have them")
            self._buffers.append(nvml.nvmlGpmSampleAlloc())
            self._buffers.append(nvml.nvmlGpmSampleAlloc())
        except card.faults as error:
            self.free()
            raise UnavailableError(f"the driver gives no GPM figures: {error}") from error

    def begin(self) -> None:
        """Forget the last sample: what happened before does not belong to this window."""
        self._older_ns = None

    def read(self, *, last: bool = False) -> list[Row]:
        """Return the figures since the last sample; none if it is too recent."""
        since = self._older_ns
        if since is not None and self._clock() - since < (LEAST_NS if last else PERIOD_NS):
            return []
        older, newer = self._buffers
        before = self._clock()
        self._sample(newer)
        now = (before + self._clock()) // 2
        self._buffers, self._older_ns = [newer, older], now
        if since is None:
            return []
        return [(counter, now, value, since) for counter, value in self._figures(older, newer)]

    def free(self) -> None:
        """Free the samples' memory."""
        for buffer in self._buffers:
            with suppress(*self._card.faults):
                self._card.nvml.nvmlGpmSampleFree(buffer)
        self._buffers = []

    def _sample(self, buffer: Any) -> None:
        card = self._card
        if card.gpu_instance is None:
            card.nvml.nvmlGpmSampleGet(card.whole, buffer)
        else:
            card.nvml.nvmlGpmMigSampleGet(card.whole, card.gpu_instance, buffer)

    def _figures(self, older: Any, newer: Any) -> list[tuple[str, float]]:
        nvml = self._card.nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(GPM)
        asked.sample1, asked.sample2 = older, newer
        for place, name in enumerate(GPM.values()):
            asked.metrics[place].metricId = getattr(nvml, name)
        nvml.nvmlGpmMetricsGet(asked)
        answers = [asked.metrics[place] for place in range(len(GPM))]
        figures = [
            (counter, each.value / 100)
            for counter, each in zip(GPM, answers, strict=True)
            if each.nvmlReturn == 0 and math.isfinite(each.value) and each.value >= 0
        ]
        if not figures:
            refusals = dict.fromkeys(str(nvml.NVMLError(each.nvmlReturn)) for each in answers if each.nvmlReturn)
            raise UnavailableError(f"the driver gives no GPM figures: {', '.join(refusals) or 'they are no numbers'}")
        return figures
