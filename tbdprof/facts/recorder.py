"""Keeps a recording, and its file if there is one, up to date during a run."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tbdprof.facts.file.writing import Writer
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Run
from tbdprof.facts.rows import Tables


class Recorder:
    """Adds windows to a recording. If its file can no longer be written, the run goes on and `missing` says why."""

    def __init__(self, run: Run, path: Path | None) -> None:
        self.recording = Recording(run)
        self._writer: Writer | None = None
        self._pid = os.getpid()
        if path is not None:
            with self._guard():
                self._writer = Writer(path, self.recording)

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
            window.state = "cut short"
            self._commit_state()
            raise
        window.state = "complete"
        self._commit_state()

    def append(self, window: Window, tables: Tables) -> None:
        """Add records to a window, and commit them."""
        for kind, rows in tables.items():
            window.tables[kind] = np.concatenate([window.table(kind), rows])
        with self._guard():
            if self._writer is not None:
                self._writer.append(window, tables)

    def close(self) -> None:
        """Commit what is left and close the file."""
        with self._guard():
            if self._writer is not None:
                self._writer.close()
        self._writer = None

    def _commit_state(self) -> None:
        with self._guard():
            if self._writer is not None:
                self._writer.write_state()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        if os.getpid() != self._pid:
            self._writer = None  # a forked child leaves its parent's file alone
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if self._writer is not None:
                self._writer.abandon()
            self._writer = None
            self.recording.missing[RemarkOn.FILE] = f"writing the file failed, what came later is not in it: {error}"
