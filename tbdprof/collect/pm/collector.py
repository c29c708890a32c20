"""Sample a GPU's hardware counters many times per step beside a kernels window (CUPTI's PM sampling).

A separate process samples (`tbdprof.collect.pm`). It lives only as long as the window, so the device memory that it
takes is free again in later windows. Whatever happens to it, the training goes on.
"""

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from tbdprof.collect import Collected
from tbdprof.collect.gpu import nvidia
from tbdprof.collect.gpu.cuda_driver import index_of
from tbdprof.collect.pm import process
from tbdprof.errors import UnavailableError
from tbdprof.facts.counters import PM_LOST, PM_RESIDUAL
from tbdprof.facts.keys import ReasonFor, RemarkOn
from tbdprof.facts.records import Strings
from tbdprof.facts.rows import KINDS, SampleRow, Table, table

INTERVAL_NS = 100_000
TIMES = ("start_ns", "end_ns")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long the process may take to answer, in seconds."""

    ready_s: float = 20.0
    answer_s: float = 10.0
    finish_s: float = 30.0


WAITING = Limits()


def available(device: str, command: Sequence[str] | None = None, limits: Limits = WAITING) -> str | None:
    """Return why counters of a device ("cuda:0") cannot be sampled here, or None if they can; it tries to.

    This takes some seconds, at most 20.
    """
    try:
        probe(device, command, limits)
    except UnavailableError as error:
        return str(error)
    return None


def probe(device: str, command: Sequence[str] | None = None, limits: Limits = WAITING) -> Mapping[str, object]:
    """Return what the process reports that it can sample: `chip`, `backend`, `library`, `metrics` by counter.

    Raise UnavailableError with the reason if it cannot sample.
    """
    if command is None and nvidia.counters().readable is False:
        raise UnavailableError(nvidia.counters().reason or "")
    with _new_folder() as folder:
        sidecar = process.Sidecar(command or process.command(index_of(device), INTERVAL_NS), Path(folder))
        try:
            return sidecar.ask(None, "ready", limits.ready_s)
        finally:
            sidecar.end()


class CounterSampler:
    """Samples the counters of a device while a window is open; a `Collector`."""

    name: str = ReasonFor.SAMPLED

    def __init__(
        self,
        device: str,
        *,
        interval_ns: int = INTERVAL_NS,
        command: Sequence[str] | None = None,
        limits: Limits = WAITING,
    ) -> None:
        self._device = device
        self._command = command or process.command(index_of(device), interval_ns)
        self._limits = limits
        self._pid = os.getpid()
        self._folder: TemporaryDirectory[str] | None = None
        self._sidecar: process.Sidecar | None = None
        self._answer: process.Answer | None = None
        self._missing: dict[str, str] = {}

    def start(self, window: str) -> None:
        """Begin to sample; if that fails, clean up and raise UnavailableError with the reason."""
        self.close()
        self._missing, self._answer = {}, None
        self._folder = _new_folder()
        try:
            self._sidecar = process.Sidecar(self._command, Path(self._folder.name))
            self._sidecar.ask(None, "ready", self._limits.ready_s)
            self._sidecar.ask("start", "started", self._limits.answer_s)
        except UnavailableError:
            self.close()
            raise

    def stop(self) -> None:
        """End sampling, and the process with it."""
        sidecar = self._own()
        if sidecar is None:
            return
        try:
            self._answer = sidecar.ask("stop", "stopped", self._limits.finish_s)
        except UnavailableError as error:
            self._missing[ReasonFor.SAMPLED] = str(error)
        finally:
            self._sidecar = None
            sidecar.end()

    def drain(self, strings: Strings) -> Collected:
        """Return the samples: one row for each counter of each sample."""
        answer, missing = self._answer, self._missing
        self._answer, self._missing = None, {}
        if answer is None or self._folder is None:
            return Collected({}, missing)
        try:
            columns = _columns(Path(self._folder.name), answer)
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            return Collected({}, {ReasonFor.SAMPLED: f"the samples cannot be read: {error}"})
        rows = _rows(columns, answer, strings, strings.add(self._device))
        return Collected({"sample": rows}, missing | _losses(answer, len(columns[TIMES[0]])))

    def close(self) -> None:
        """End the process, if there is one, and delete its files."""
        sidecar = self._own()
        self._sidecar = None
        if sidecar is not None:
            sidecar.end()
        if self._folder is not None and self._pid == os.getpid():
            self._folder.cleanup()
            self._folder = None

    def _own(self) -> process.Sidecar | None:
        """Return the process, or None in a forked child, where it is the parent's."""
        if self._sidecar is not None and self._pid != os.getpid():
            self._sidecar.forget()
            self._sidecar = None
        return self._sidecar


def _new_folder() -> TemporaryDirectory[str]:
    try:
        return TemporaryDirectory(prefix="tbdprof-", ignore_cleanup_errors=True)
    except OSError as error:
        raise UnavailableError(f"there is no place for the samples: {error}") from error


def _columns(folder: Path, answer: process.Answer) -> dict[str, NDArray[np.float64]]:
    path = folder / Path(str(answer["file"])).name
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        columns = {name: stored[name] for name in stored.files}
    if {len(column) for column in columns.values()} != {len(columns[TIMES[0]])} or TIMES[1] not in columns:
        raise ValueError("its columns are not of one length")
    return columns


def _rows(columns: Mapping[str, NDArray[np.float64]], answer: process.Answer, strings: Strings, device: int) -> Table:
    start, end = (columns[name] for name in TIMES)
    pieces = []
    for counter, values in columns.items():
        valid = np.isfinite(values) if counter not in TIMES else np.zeros(len(values), bool)
        rows = np.zeros(int(valid.sum()), KINDS["sample"])
        rows["counter"], rows["device"], rows["value"] = strings.add(counter), device, values[valid]
        rows["start_ns"], rows["time_ns"] = start[valid], end[valid]
        pieces += [rows] if len(rows) else []
    last = int(end[-1]) if len(end) else 0
    for counter, value in ((PM_LOST, answer.get("lost")), (PM_RESIDUAL, answer.get("residual_ns"))):
        if value is not None and len(end):
            pieces.append(table("sample", [SampleRow(strings.add(counter), device, last, float(value))]))
    return np.concatenate([np.zeros(0, KINDS["sample"]), *pieces])


def _losses(answer: process.Answer, samples: int) -> dict[str, str]:
    """Return how many samples are lost, and why."""
    if not samples:
        return {ReasonFor.SAMPLED: "the device gave no sample in the window"}
    losses = answer.get("losses") or {}
    overflows, full = int(losses.get("overflows", 0)), int(losses.get("full", 0))
    reasons = [
        f"the hardware's buffer overflowed {overflows} times" if overflows else "",
        f"more came than one reading took {full} times" if full else "",
    ]
    lost = int(answer.get("lost") or 0)
    if not lost and not any(reasons):
        return {}
    because = "; ".join(filter(None, reasons))
    return {RemarkOn.SAMPLES: f"{lost} of {samples + lost} samples are lost{f': {because}' if because else ''}"}
