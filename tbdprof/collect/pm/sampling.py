"""Sample one device: choose the metrics, the interval and the clock of the samples."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from tbdprof.collect.activity.clock_fit import Fit, Pair, fit, pair
from tbdprof.collect.pm import CuptiError, Decoded, Floats, Ints, Sampler, Wanted, losses, metrics, statuses
from tbdprof.facts.counters import PM_BUSY, PM_FP32

POLL_S = 0.1
_TRIAL_S = 0.005
_ROOM = 4  # polls that one decoding has space for: what does not fit is lost
_SAMPLE_BYTES = 16_384  # of the hardware's buffer per sample, at most, as others have measured
_LEAST_BUFFER = 64 << 20
_MOST_REOPENED = 5
_MOST_DECODINGS = 20  # until nothing is left after the end
_NEAR_NS = 50_000_000  # a sample further outside the sampling time is on another clock
_MOSTLY = 0.9

Clocks = Mapping[str, Callable[[], int]]


@dataclass(frozen=True, slots=True)
class Samples:
    """What was sampled, on the clock of `time.monotonic_ns`: one column per counter."""

    start_ns: Ints
    end_ns: Ints
    columns: Mapping[str, Floats]
    lost: losses.Losses
    interval_ns: int  # the usual length
    clock: str  # name of the clock that the times were converted from
    residual_ns: float


class Sampling:
    """Samples a device's counters between `start` and `finish`; every call may raise CuptiError."""

    def __init__(self, open_sampler: Callable[[], Sampler], interval_ns: int) -> None:
        """Find what can be sampled here, by trying it."""
        self._open = open_sampler
        self._pieces: list[Decoded] = []
        self._overflows = 0
        self._pairs: dict[str, list[Pair]] = {}
        self._on = False
        self._refusal: CuptiError | None = None  # for the metrics requested last
        self.sampler = open_sampler()
        self._wanted, self.chosen = self._found(interval_ns)

    @property
    def on(self) -> bool:
        """Return whether it samples now."""
        return self._on

    @property
    def by_time(self) -> bool:
        """Return whether samples have equal lengths in time, instead of equal numbers of cycles."""
        return self._wanted.by_time

    def start(self) -> None:
        """Begin to sample."""
        self._pieces, self._overflows, self._pairs = [], 0, {}
        self._read_clocks()
        self.sampler.start()
        self._on = True

    def poll(self) -> None:
        """Take samples out of the hardware's buffer; if it has overflowed, start again."""
        before = self._overflows
        self._take()
        if self._overflows == before:
            return
        if self._overflows > _MOST_REOPENED:
            raise CuptiError("decoding samples", statuses.OUT_OF_MEMORY, "its buffer overflows again and again")
        self._reopen()
        self.sampler.configure(self._wanted)
        self.sampler.start()

    def finish(self) -> Samples:
        """Stop, and return what was sampled."""
        self._on = False
        self.sampler.stop()
        self._read_clocks()
        for _ in range(_MOST_DECODINGS):
            if not self._take():
                break
        return self._converted()

    def close(self) -> None:
        """Release the device as far as possible; ignore errors, because the caller's reason matters more."""
        with suppress(CuptiError):
            self.sampler.close()

    def _take(self) -> int:
        """Decode the available samples and count an overflow; return how many samples there were."""
        try:
            piece = self.sampler.decode()
        except CuptiError as error:
            if error.status != statuses.OUT_OF_MEMORY:
                raise
            self._overflows += 1
            return 0
        self._overflows += piece.overflow
        self._pieces.append(piece)
        return len(piece.start)

    def _found(self, interval_ns: int) -> tuple[Wanted, tuple[tuple[metrics.Metric, str], ...]]:
        """Return what this device can sample: the first of the chip's ways that starts."""
        failed: CuptiError | None = None
        for family in metrics.families(self.sampler.chip):
            chosen = metrics.chosen(family, partial(self._passes, metric_set=family.metric_set))
            if not {PM_BUSY, PM_FP32} <= {metric.counter for metric, _ in chosen}:
                continue
            names = tuple(name for _, name in chosen)
            for by_time, interval in metrics.intervals(self.sampler.chip, interval_ns).items():
                wanted = _wanted(names, interval, interval_ns, by_time=by_time, metric_set=family.metric_set)
                try:
                    self._try(wanted)
                except CuptiError as error:
                    failed = error
                    self._reopen()
                else:
                    return wanted, chosen
        raise failed or self._refusal or CuptiError("choosing metrics", statuses.NOT_SUPPORTED)

    def _passes(self, names: Sequence[str], metric_set: str | None) -> int | None:
        try:
            return self.sampler.passes(names, metric_set)
        except CuptiError as error:
            self._refusal = error
            return None

    def _try(self, wanted: Wanted) -> None:
        self.sampler.configure(wanted)
        self.sampler.start()
        time.sleep(_TRIAL_S)
        self.sampler.stop()
        self.sampler.decode()

    def _reopen(self) -> None:
        self.close()
        self.sampler = self._open()

    def _clocks(self) -> Clocks:
        """Return the clocks that the samples' times may use, the likeliest first."""
        raw = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC_RAW)
        return {
            "cupti": self.sampler.timestamp,
            "realtime": time.time_ns,
            "monotonic": time.monotonic_ns,
            "monotonic_raw": raw,
        }

    def _read_clocks(self) -> None:
        for name, clock in self._clocks().items():
            with suppress(CuptiError):  # leave out a clock that reports no time
                read = pair(clock)
                self._pairs.setdefault(name, []).append(read)

    def _converted(self) -> Samples:
        lost = losses.Losses(
            full=sum(each.full for each in self._pieces),
            overflows=self._overflows,
        )
        every = losses.joined(self._pieces, len(self.chosen))
        begun, ended = (self._pairs["monotonic"][place][1] for place in (0, -1))
        clock, line = self._clock_of(every, begun, ended)
        start, end = line.convert(every.start), line.convert(every.end)
        inside = (start >= begun - _NEAR_NS) & (end <= ended + _NEAR_NS) & (every.start > 0)
        lost.outside = int((~inside).sum())
        kept = losses.believed(losses.Kept(start, end, every.values).only(inside), lost)
        columns = {
            metric.counter: kept.values[:, place] * metric.scale for place, (metric, _) in enumerate(self.chosen)
        }
        return Samples(kept.start, kept.end, columns, lost, kept.interval_ns, clock, line.residual_ns)

    def _clock_of(self, samples: losses.Kept, begun: int, ended: int) -> tuple[str, Fit]:
        """Return the clock on which the samples lie within the sampling time."""
        lines = {name: fit(pairs) for name, pairs in self._pairs.items()}
        ends = samples.end[samples.start > 0]
        if not len(ends):
            return next(iter(lines.items()))
        for name, line in lines.items():
            times = line.convert(ends)
            if np.mean((times >= begun - _NEAR_NS) & (times <= ended + _NEAR_NS)) >= _MOSTLY:
                return name, line
        raise CuptiError("decoding samples", statuses.UNKNOWN, "the times of samples are of no clock that is known")


def _wanted(
    names: tuple[str, ...], interval: int, interval_ns: int, *, by_time: bool, metric_set: str | None
) -> Wanted:
    slots = int(_ROOM * POLL_S * 1e9 / interval_ns) + 64
    return Wanted(names, interval, by_time, max(_LEAST_BUFFER, 2 * slots * _SAMPLE_BYTES), slots, metric_set)
