"""Sample what the NVIDIA driver reports while a window is open: power, energy, clocks, memory, utilization.

A thread reads the driver, by default every 100 ms. The loop's own thread waits only for the first and the last reading
of a window. Each value is read on its own. If it is refused a few times in a row, it is no longer read, and `missing`
holds the reason; the others go on.
"""

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tbdprof.collect import Collected
from tbdprof.collect.gpu.nvml_card import (
    EACH_TICK,
    INSTANT,
    MEMORY,
    SLOWLY,
    Card,
    Figures,
    Power,
    faults,
    open_card,
    shut,
)
from tbdprof.collect.gpu.nvml_stretches import Clock, DriverBusy, Gpm, Row
from tbdprof.errors import UnavailableError
from tbdprof.facts import counters
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.records import Strings
from tbdprof.facts.rows import SampleRow, table

PERIOD_S = 0.1
SLOW_NS = 1_000_000_000  # between two readings of values that change slowly or take the driver long
PATIENCE_S = 10.0  # limit for the driver's answer at the start and end of a window
GIVES_UP = 3  # refusals in a row after which a value is no longer read
WITHOUT_GPM = ("sampled",)  # windows in which CUPTI samples the hardware counters that GPM also reads
OF_WHOLE_CARD = "the card is divided (MIG), and its driver reports power and energy only for the whole card"


def since_start_ns() -> int:
    """Return the time since the machine started, including sleep if the system counts it."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)


class Reader:
    """Reads each value when it is due, and keeps the values and the driver's refusals."""

    def __init__(
        self, card: Card, clock: Clock = time.monotonic_ns, wall: Clock = time.time_ns, started: Clock = since_start_ns
    ) -> None:
        self.card = card
        self._clock = clock
        self._caught: tuple[type[Exception], ...] = (UnavailableError, *card.faults)
        self._rows: list[Row] = []
        self._reasons: dict[str, str] = {}
        self._refused: dict[str, int] = {}
        self._answered: set[str] = set()
        self._slow_ns: int | None = None
        self._often: tuple[str, ...] = ()
        self._reads_gpm = False
        self._power = Power(card)
        self._busy = DriverBusy(card, clock, (wall, started))
        self._gpm: Gpm | None = None
        try:
            self._gpm = Gpm(card, clock)
        except UnavailableError as error:
            self._reasons[ReasonFor.GPM] = str(error)
        if card.gpu_instance is not None:
            self._reasons |= dict.fromkeys((ReasonFor.ENERGY_COUNTER, ReasonFor.POWER), OF_WHOLE_CARD)
            self._refused |= dict.fromkeys((ReasonFor.ENERGY_COUNTER, ReasonFor.POWER), GIVES_UP)

    def begin(self, window: str) -> None:
        """Begin a window with its first readings."""
        self._rows, self._slow_ns = [], None
        self._often = tuple(MEMORY) if window == "memory" else ()
        self._reads_gpm = window not in WITHOUT_GPM
        self._busy.begin()
        if self._gpm is not None:
            self._gpm.begin()
        self.tick()

    def tick(self, *, last: bool = False) -> None:
        """Read the values that are due; at the end of a window, read all."""
        for name, ask in EACH_TICK.items():
            self._ask(name, partial(self._answers, ask))
        self._ask(ReasonFor.POWER, self._watts)
        gpm = self._gpm
        if gpm is not None and self._reads_gpm:
            self._ask(ReasonFor.GPM, lambda: gpm.read(last=last))
        due = last or self._slow_ns is None or self._clock() - self._slow_ns >= SLOW_NS
        for name, ask in (*MEMORY.items(), *SLOWLY.items()):
            if due or name in self._often:
                self._ask(name, partial(self._answers, ask))
        if due:
            self._slow_ns = self._clock()
            self._ask(ReasonFor.DRIVER_BUSY, self._busy.read)

    def take(self) -> tuple[list[Row], dict[str, str]]:
        """Return the values since `begin`, and by name the reasons why there never was one."""
        rows, self._rows = self._rows, []
        return rows, {name: reason for name, reason in self._reasons.items() if name not in self._answered}

    def close(self) -> None:
        """Release what the driver allocated."""
        if self._gpm is not None:
            self._gpm.free()
        self._gpm = None
        shut(self.card.nvml)

    def _answers(self, ask: Callable[[Card], Figures]) -> list[Row]:
        figures = list(ask(self.card))
        now = self._clock()
        return [(counter, now, value, INSTANT) for counter, value in figures]

    def _watts(self) -> list[Row]:
        now = self._clock()
        watts, since = self._power.read(now)
        return [(counters.POWER, now, watts, since)]

    def _ask(self, name: str, read: Callable[[], list[Row]]) -> None:
        if self._refused.get(name, 0) >= GIVES_UP:
            return
        try:
            rows = read()
        except self._caught as error:
            self._refused[name] = self._refused.get(name, 0) + 1
            self._reasons[name] = _refusal(error, self.card.nvml)
            return
        self._refused[name] = 0
        self._rows += rows
        if rows:
            self._answered.add(name)


def _refusal(error: Exception, nvml: Any) -> str:
    if isinstance(error, UnavailableError):
        return str(error)
    if isinstance(error, faults(nvml)) and not isinstance(error, AttributeError):
        return f"the driver refuses: {error}"
    return f"nvidia-ml-py cannot ask this driver: {error}"


class NvmlSampler:
    """Samples a device in a thread of its own while a window is open; a `Collector`.

    `index` is the framework's number of the device, `cuda:{index}`. If the driver does not answer once, it is not
    waited for again.
    """

    name: str = ReasonFor.DEVICE

    def __init__(
        self,
        index: int,
        *,
        period_s: float = PERIOD_S,
        nvml: Any = None,
        cuda: Any = None,
        clock: Clock = time.monotonic_ns,
        wall: Clock = time.time_ns,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._index = index
        self._period_s = period_s
        self._open: Callable[[], Reader] = lambda: Reader(open_card(index, nvml, cuda), clock, wall)
        self._patience_s = patience_s
        self._process = os.getpid()
        self._reader: Reader | None = None
        self._refusal: str | None = None  # why it will never start
        self._thread: threading.Thread | None = None
        self._begun, self._ends = threading.Event(), threading.Event()

    def start(self, window: str) -> None:
        """Begin to sample; raise UnavailableError if the driver does not answer, now or in an earlier window."""
        if self._process != os.getpid():
            raise UnavailableError("a forked process does not sample the device")
        if self._refusal is None:
            self._begun, self._ends = threading.Event(), threading.Event()
            work = (window, self._begun, self._ends)
            thread = threading.Thread(target=self._work, args=work, name="tbdprof-nvml", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise UnavailableError(f"the device is not sampled: {error}") from error
            self._thread = thread
            if not self._begun.wait(self._patience_s):
                self._abandon()
        if self._refusal is not None:
            raise UnavailableError(self._refusal)

    def stop(self) -> None:
        """Take the last samples and end the thread."""
        if self._thread is None or self._process != os.getpid():
            return
        self._ends.set()
        self._thread.join(self._patience_s)
        if self._thread.is_alive():
            self._abandon()
        self._thread = None

    def drain(self, strings: Strings) -> Collected:
        """Return the window's samples."""
        if self._reader is None or self._process != os.getpid():
            return Collected(missing={} if self._refusal is None else {self.name: self._refusal})
        taken, missing = self._reader.take()
        device = strings.add(f"cuda:{self._index}")
        rows = [SampleRow(strings.add(counter), device, at, value, since) for counter, at, value, since in taken]
        return Collected({"sample": table("sample", rows)}, missing)

    def close(self) -> None:
        """End the use of NVML; if the driver hangs, leave it what it has."""
        self.stop()
        reader, self._reader = self._reader, None
        if reader is not None and self._process == os.getpid():
            reader.close()

    def _abandon(self) -> None:
        self._refusal = f"the NVIDIA driver did not answer within {self._patience_s:g} s"
        self._ends.set()
        self._reader = None

    def _work(self, window: str, begun: threading.Event, ends: threading.Event) -> None:
        """Run in the thread: begin, then read until the window ends."""
        try:
            reader = self._opened(ends)
            if reader is None:
                return
            reader.begin(window)
        finally:
            begun.set()  # in every case, because the loop waits for it
        due = time.monotonic() + self._period_s
        while not ends.wait(max(0.0, due - time.monotonic())):
            reader.tick()
            due = max(due + self._period_s, time.monotonic())
        reader.tick(last=True)

    def _opened(self, ends: threading.Event) -> Reader | None:
        """Return the device's reader, opened at the first call, or None if that is refused or the window has ended."""
        try:
            reader = self._reader or self._open()
        except UnavailableError as error:
            self._refusal = str(error)
            return None
        if ends.is_set() or self._refusal is not None:
            reader.close()
            return None
        self._reader = reader
        return reader
