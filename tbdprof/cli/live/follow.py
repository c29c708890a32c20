"""Reads a recording again and again while a run writes it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tbdprof.analysis.live import READS, live
from tbdprof.cli.opening import refuse_common_name
from tbdprof.errors import RecordingFormatError
from tbdprof.facts.file.places import journal_of, mark
from tbdprof.facts.file.reading import load
from tbdprof.facts.file.watching import is_written, latest
from tbdprof.facts.recording import KILLED, OPEN, Recording
from tbdprof.facts.records import Run
from tbdprof.facts.windows import KERNELS, MEMORY, SAMPLED
from tbdprof.results.summary import Summary
from tbdprof.results.time import Live

EVERY_S = 0.5  # as often as a run writes
SHARE = 20  # a look is followed by a pause of at least so many times its length
PATIENCE = 10  # looks that may fail one after another while a run writes
WATCHED = (MEMORY, KERNELS, SAMPLED)  # the windows that a summary is made anew after


Summarize = Callable[[Recording], Summary]


class Stage(Enum):
    """How far a run is, as its file and its lock show."""

    WAITING = "there is no file yet"
    PREPARING = "a run has claimed the file, and records nothing yet"
    RUNNING = "a run records"
    UNSURE = "the file does not say that the run ended, and this file system has no locks to see whether it goes on"
    ENDED = "the recording has its end"
    GONE = "nobody writes the file any more, and what was recorded, if anything, has no end"


OVER = (Stage.ENDED, Stage.GONE)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at the file showed."""

    stage: Stage
    run: Run | None = None  # with the next two: the run that is or was recorded
    live: Live | None = None
    summary: Summary | None = None  # of what had ended when the last memory or kernels window did


def follow(
    path: Path, summarize: Summarize, pause: Callable[[float], None] = time.sleep, older: object = None
) -> Iterator[Seen]:
    """Yield what each look shows, until the recording has ended or nobody writes it any more.

    `summarize` works out all results of a recording. A file whose mark is `older` is none of this run. Raise
    RecordingFormatError if the file cannot be read, and UsageError if the path is a name that several ranks share.
    """
    looks = _Looks(path, summarize, older)
    while True:
        begun = time.thread_time()
        seen = looks.look()
        yield seen
        if seen.stage in OVER:
            return
        pause(max(EVERY_S, SHARE * (time.thread_time() - begun)))


class _Looks:
    """Looks at a file, and reads it only when it is new."""

    def __init__(self, path: Path, summarize: Summarize, older: object) -> None:
        self._path = path
        self._summarize = summarize
        self._older = older
        self._before = mark(path)
        self._was_claimed = False
        self._file: Path | None = None  # that was read last
        self._marks: object = None  # of it and its journal, then
        self._failures = 0
        self._recording: Recording | None = None
        self._summarized: object = None  # which windows the summary is of
        self._seen = Seen(Stage.WAITING)

    def look(self) -> Seen:
        """Return what there is now. The lock is looked at first: what is read after it was free is the last word."""
        written = is_written(self._path)
        file = self._path if written is False else latest(self._path)
        if file is None or mark(file) in (None, self._older) or self._kept_nothing(written=written):
            refuse_common_name(self._path)
            self._seen = Seen(self._without_file(written=written))
        else:
            self._try(file, written=written)
        self._was_claimed |= bool(written)
        return self._seen

    def _kept_nothing(self, *, written: bool | None) -> bool:
        """Return whether a run had claimed the place, ended, and left there what was there before."""
        is_over = self._was_claimed and written is False
        return is_over and self._file != self._path and mark(self._path) == self._before

    def _without_file(self, *, written: bool | None) -> Stage:
        if written:
            return Stage.PREPARING
        return Stage.GONE if self._was_claimed else Stage.WAITING

    def _try(self, file: Path, *, written: bool | None) -> None:
        """See what the file has. While a run writes, it may look damaged for a moment: that is passed over."""
        try:
            self._seen = self._judged(self._read(file), file, written=written)
            self._failures = 0
        except RecordingFormatError:
            self._failures += 1
            if written is False or self._failures > PATIENCE:
                raise

    def _read(self, file: Path) -> Recording:
        """Return what the file has; it is read only if that is new."""
        marks = mark(file), mark(journal_of(file.resolve()))
        if self._recording is None or (file, marks) != (self._file, self._marks):
            self._recording = load(file, kinds=READS)
            self._file, self._marks = file, marks
        return self._recording

    def _judged(self, recording: Recording, file: Path, *, written: bool | None) -> Seen:
        stage = Stage.ENDED
        if recording.run.ended_by == KILLED:
            stage = {True: Stage.RUNNING, None: Stage.UNSURE, False: Stage.GONE}[written]
        ended = [each.ordinal for each in recording.windows if each.state != OPEN and each.name in WATCHED]
        summary, now = self._seen.summary, (stage in OVER, ended)
        if now != self._summarized:
            summary = self._summarize(load(file)) if ended or stage in OVER else None
            self._summarized = now
        return Seen(stage, recording.run, live(recording), summary)
