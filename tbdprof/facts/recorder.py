"""Keeps a recording, and its file if there is one, up to date during a run."""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tbdprof.facts.file.places import PART, beside, clear, give_room, reason
from tbdprof.facts.file.writing import Writer
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.recording import STILL_RUNNING, Recording, Window
from tbdprof.facts.records import Run, Strings
from tbdprof.facts.rows import Table, Tables
from tbdprof.facts.windows import WARMUP

NO_STEP = "no step was recorded, so there is no file"
ONLY_WARMUP = "the run ended in its warm-up, so the older recording was kept"
COMMIT_EVERY_S = 0.5  # a commit takes about 2 ms: as long as a small model's step


class Recorder:
    """Adds windows to a recording. If its file can no longer be written, the run goes on and `missing` says why."""

    def __init__(self, run: Run, path: Path | None) -> None:
        self.recording = Recording(run)
        self._path = path or Path()
        self._file: _File | None = None
        self._pid = os.getpid()
        self._waiting: dict[str, list[Table]] = {}  # records of the last window that are not committed yet
        self._committed_s = -COMMIT_EVERY_S
        if path is not None:
            with self._guard():
                self._file = _File(path, self.recording)

    def update(self, **changes: Any) -> None:
        """Replace facts of the run."""
        self.recording.run = replace(self.recording.run, **changes)

    @contextmanager
    def window(self, name: str) -> Iterator[Window]:
        """Open a window; it is complete when the block ends, cut short when it is left by an exception."""
        window = Window(len(self.recording.windows), name)
        self.recording.windows.append(window)
        self._commit_state()
        try:
            yield window
        except BaseException:
            self._end(window, "cut short")
            raise
        self._end(window, "complete")

    def append(
        self, window: Window, tables: Tables, *, instead_of: Sequence[Window] = (), may_wait: bool = False
    ) -> None:
        """Add records to a window, delete those of the windows that it replaces, and commit both together.

        Records that may wait are committed with later ones, at the latest when the window ends: while a window is
        recorded there is then no more than one commit every `COMMIT_EVERY_S`.
        """
        for old in instead_of:
            old.tables.clear()
        for kind, rows in tables.items():
            window.tables[kind] = np.concatenate([window.table(kind), rows])
            self._waiting.setdefault(kind, []).append(rows)
        is_placed = self._file is None or self._file.is_placed  # the first records that count take the place at once
        is_early = time.monotonic() - self._committed_s < COMMIT_EVERY_S
        if not (may_wait and is_placed and is_early) or instead_of:
            self._commit(window, instead_of)

    def close(self) -> None:
        """Commit what is left and close the file; if it is not kept, `missing` says why."""
        with self._guard():
            not_kept = None if self._file is None else self._file.close()
            if not_kept is not None:
                self.recording.missing[RemarkOn.FILE] = not_kept
        self._file = None

    def _end(self, window: Window, state: str) -> None:
        window.state = state
        if self._waiting:
            self._commit(window)
        else:
            self._commit_state()

    def _commit(self, window: Window, instead_of: Sequence[Window] = ()) -> None:
        waiting, self._waiting = self._waiting, {}
        with self._guard():
            if self._file is not None:
                tables = {kind: np.concatenate(pieces) for kind, pieces in waiting.items()}
                self._file.append(window, tables, instead_of)
        self._committed_s = time.monotonic()

    def _commit_state(self) -> None:
        with self._guard():
            if self._file is not None:
                self._file.write_state()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        if os.getpid() != self._pid:
            self._file = None  # a forked child leaves its parent's file alone
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def _give_up(self, error: sqlite3.Error | OSError) -> None:
        """Go on without the file, and note why, in the file too if it can be written at all."""
        file, self._file = self._file, None
        why = reason(error, self._path if file is None else file.path)
        lost = "what came later is not in it" if file is not None and file.is_placed else "nothing is kept of this run"
        self.recording.missing[RemarkOn.FILE] = f"writing the file failed, {lost}: {why}"
        if file is not None:
            file.abandon(why)


class _File:
    """Keeps a file up to date with a recording that grows. Whoever makes it, or its parent process, claimed the place.

    It is written beside its place, and takes the place with its first record. Where an older recording is replaced,
    that record is of a window after the warm-up: a warm-up alone is less than there was.
    """

    def __init__(self, path: Path, recording: Recording) -> None:
        self._target = Path(os.path.realpath(path))
        self._recording = recording
        self._replaces = self._target.exists()
        self._texts = len(recording.strings)  # in the file
        clear(self._target)
        try:
            self._writer = Writer(beside(self._target, PART), recording)
        except BaseException:
            clear(self._target)
            raise

    @property
    def path(self) -> Path:
        """Return where it is now."""
        return self._writer.path

    @property
    def is_placed(self) -> bool:
        """Return whether it took its place."""
        return self.path == self._target

    def write_state(self) -> None:
        """Commit the run and the list of windows, without their events."""
        self._writer.write_state()
        self._texts = len(self._recording.strings)

    def append(self, window: Window, tables: Tables, instead_of: Sequence[Window]) -> None:
        """Commit new records of a window in place of older ones, and take the place if they are worth keeping."""
        self._writer.append(window, tables, instead_of)
        self._texts = len(self._recording.strings)
        is_worth = any(map(len, tables.values())) and not (self._replaces and window.name == WARMUP)
        if is_worth and not self.is_placed:
            self._writer.move(self._target)

    def close(self) -> str | None:
        """Commit the last state and close the file; return why it is not kept, or None if it is."""
        self._writer.close()
        if self.is_placed:
            return None
        clear(self._target)
        return ONLY_WARMUP if self._replaces else NO_STEP

    def abandon(self, why: str) -> None:
        """Close the file as it is; why it ends there is in it, if that can still be written."""
        give_room(self._target)
        try:
            self._write_end(why)
        except (sqlite3.Error, OSError):
            self._writer.abandon()
        if not self.is_placed:
            clear(self._target)

    def _write_end(self, why: str) -> None:
        """Commit why the recording ends, without the texts of the records that it lacks, and close the file."""
        whole = self._recording
        run = replace(whole.run, ended_by=why, complete=False) if whole.run.ended_by == STILL_RUNNING else whole.run
        texts = tuple(whole.strings[index] for index in range(self._texts))
        self._writer.recording = Recording(run, whole.windows, Strings(texts), whole.missing)
        self._writer.close()
