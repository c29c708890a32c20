"""The largest batch of a suite's model that fits, found by fresh processes after a run ended out of memory.

Each process takes a few steps at one batch size and reports all memory it used: the allocator with its cache and
rounding, the context, the libraries. The figures of two small batches give a line, a + c × batch. The largest batch on
the line that fits into the room, less a margin for what is not linear, is then tried itself. Small batches may predict
too large a batch, because the memory that any batch takes hides the memory per sample. Then a smaller batch gives the
next line.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tbdprof.collect import fresh
from tbdprof.errors import UnavailableError
from tbdprof.facts.file.placing import write_anew
from tbdprof.facts.file.reading import load
from tbdprof.facts.keys import ReasonFor
from tbdprof.launch.forecast import size_that_fills
from tbdprof.launch.request import RunRequest

MARGIN = 0.03  # share of the room
LIMIT_S = 200.0  # no trial begins later
TRIAL_S = 100.0  # for each trial
MOST_TRIALS = 3  # after the first sizes
MODULE = "tbdprof.launch.batch_trial"


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a trial at one batch size; `took_bytes` is None if it did not fit."""

    took_bytes: int | None
    room_bytes: int


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of all trials: the largest batch that fitted, or None and why, and the bytes of each that fitted."""

    batch_size: int | None
    peaks: Mapping[int, int]
    room_bytes: int | None
    reason: str | None = None


Attempt = Callable[[int], Trial]  # may raise UnavailableError


def search(failed: int, attempt: Attempt, clock: Callable[[], float] = time.monotonic, limit_s: float = LIMIT_S) -> Fit:
    """Return the largest batch below a failed one that trials find to fit within `limit_s`."""
    trials = _Trials(failed, attempt, clock, clock() + limit_s)
    try:
        for size in _first_sizes(failed):
            if not trials.run(size):
                break
        while not trials.peaks and trials.failed > 1:
            trials.run(max(1, trials.failed // 4))
        _approach(trials)
    except UnavailableError as error:
        trials.reason = str(error)
    if not trials.largest:
        return Fit(None, {}, trials.room_bytes, trials.reason or "no batch that was tried fits")
    return Fit(trials.largest, trials.peaks, trials.room_bytes)


def _first_sizes(failed: int) -> list[int]:
    """Return the sizes tried first: an eighth and a quarter of the failed batch, or most sizes below a small one."""
    few = {1, failed // 2, min(failed - 1, 4)}
    return sorted(size for size in (few if failed < 8 else {failed // 8, failed // 4}) if 0 < size < failed)


def _approach(trials: "_Trials") -> None:
    """Try the batch that a line predicts until one fits; if a prediction fails, a smaller batch gives the next line."""
    for _ in range(MOST_TRIALS):
        forecast = trials.forecast()
        size = trials.between() if forecast is None else forecast
        if size <= trials.largest:
            return
        if trials.run(size) and forecast is not None:
            return


class _Trials:
    """The trials so far."""

    def __init__(self, failed: int, attempt: Attempt, clock: Callable[[], float], until: float) -> None:
        self._attempt, self._clock, self._until = attempt, clock, until
        self.peaks: dict[int, int] = {}
        self.failed = failed  # the smallest batch that did not fit
        self.room_bytes: int | None = None
        self.reason: str | None = None

    @property
    def largest(self) -> int:
        """Return the largest batch that fitted, or 0 if none did."""
        return max(self.peaks, default=0)

    def run(self, size: int) -> bool:
        """Try a batch size, and return whether it fits."""
        if self._clock() > self._until:
            raise UnavailableError("the time for trials was over")
        trial = self._attempt(size)
        self.room_bytes = trial.room_bytes
        if trial.took_bytes is None:
            self.failed = min(size, self.failed)
        else:
            self.peaks[size] = trial.took_bytes
        return trial.took_bytes is not None

    def forecast(self) -> int | None:
        """Return the largest batch on the line through the two largest that fitted.

        The result is None if there is no line, or if the line predicts a batch that did not fit.
        """
        if len(self.peaks) < 2 or self.room_bytes is None:
            return None
        found = size_that_fills(self.peaks, self.room_bytes * (1 - MARGIN))
        if found is None:
            return self.largest  # the line predicts nothing for larger batches
        return found if found < self.failed else None

    def between(self) -> int:
        """Return half of the smallest batch that failed, or the middle between it and the largest that fits."""
        half = self.failed // 2
        return half if half > self.largest else (self.largest + self.failed) // 2


def keep(fit: Fit, path: Path) -> None:
    """Add a search's result to a recording; raise TbdprofError if the file cannot be read or written."""
    recording = load(path)
    recording.run = replace(
        recording.run,
        batch_peaks={str(size): took for size, took in sorted(fit.peaks.items())},
        batch_room_bytes=fit.room_bytes,
        fitting_batch=fit.batch_size,
    )
    if fit.reason is not None:
        recording.missing[ReasonFor.FITTING_BATCH] = fit.reason
    write_anew(recording, path)


def in_fresh_processes(request: RunRequest) -> Attempt:
    """Return an attempt that trains a model in a process of its own."""

    def attempt(batch_size: int) -> Trial:
        return Trial(**fresh.ask(MODULE, replace(request, batch_size=batch_size).to_json(), TRIAL_S))

    return attempt
