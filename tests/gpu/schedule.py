"""Checks one after another, each in a process of its own with its own limit; what one does, no other suffers from.

A check's process prints nothing that matters: it leaves its verdict in a file. The results are written after every
check, so that a script that is ended keeps what it had, and a later one goes on by name.
"""

import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

LIMIT = "TBDPROF_CHECK_LIMIT_S"  # how long a check's process may take
PASS, FAIL, NOT_POSSIBLE = "pass", "fail", "not possible"
LEAST_S = 5.0  # with less left a check is not begun
GONE_S = 5.0  # for what was killed to be gone
LAST_WORDS = 300  # of what a process printed before it died


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found: its state, one sentence, and the figures that say so."""

    state: str
    reason: str
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must be shown, the most seconds it may take, and how."""

    name: str
    limit_s: float
    run: Callable[[Path], Verdict]  # takes the output folder


@dataclass(frozen=True, slots=True)
class Result:
    """A check's verdict and how long it took."""

    name: str
    verdict: Verdict
    seconds: float


Runner = Callable[[Check, Path, float], Verdict]


def judged(reason: str, bounds: Mapping[str, bool], figures: Mapping[str, Any]) -> Verdict:
    """Return pass where all of some named conditions hold, else which do not."""
    broken = [name for name, holds in bounds.items() if not holds]
    if broken:
        return Verdict(FAIL, f"{reason}; does not hold: {', '.join(broken)}", figures)
    return Verdict(PASS, reason, figures)


def chosen(checks: Sequence[Check], only: Iterable[str]) -> list[Check]:
    """Return the checks of some names, or that begin with them, in their order; all where none is named."""
    wanted = tuple(only)
    found = [check for check in checks if not wanted or check.name.startswith(wanted)]
    unknown = [name for name in wanted if not any(check.name.startswith(name) for check in checks)]
    if unknown:
        raise ValueError(f"no check is called {', '.join(unknown)}: choose from --list")
    return found


def run_all(
    checks: Sequence[Check],
    folder: Path,
    runner: Runner,
    *,
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
    report: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Run checks until the time is up, and keep every result beside those of earlier calls."""
    begun, results = clock(), list[Result]()
    for check in checks:
        start = clock()
        left = limit_s - (start - begun)
        if left < LEAST_S:
            verdict = Verdict(NOT_POSSIBLE, f"no time was left for it: call again with --only {check.name}")
        else:
            verdict = runner(check, folder, min(left, check.limit_s))
        results.append(Result(check.name, verdict, clock() - start))
        keep(folder, results[-1:])
        report(results[-1])
    return results


def in_process(command: Callable[[Check, Path], Sequence[str]]) -> Runner:
    """Return what runs a check by a command that leaves its verdict in the given file."""

    def run(check: Check, folder: Path, limit_s: float) -> Verdict:
        left = folder / f"{check.name}.verdict.json"
        left.unlink(missing_ok=True)
        log = folder / f"{check.name}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command(check, left),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env={**os.environ, LIMIT: str(limit_s)},
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
        return _verdict(code, left, log, limit_s)

    return run


def keep(folder: Path, results: Iterable[Result]) -> None:
    """Write results as JSON and as text, in place of earlier ones of the same names."""
    file = folder / "results.json"
    known = {each.name: each for each in load(file)}
    known |= {each.name: each for each in results}
    _write(file, [asdict(each) for each in known.values()])
    (folder / "results.txt").write_text(text(list(known.values())))


def leave(verdict: Verdict, file: Path) -> None:
    """Write a verdict at once, so that a process that is ended leaves all of it or nothing."""
    _write(file, asdict(verdict))


def load(file: Path) -> list[Result]:
    """Return the results of a file, none where there is none."""
    if not file.exists():
        return []
    rows = json.loads(file.read_text())
    return [Result(row["name"], Verdict(**row["verdict"]), row["seconds"]) for row in rows]


def text(results: Sequence[Result]) -> str:
    """Return results for people: a line a check, its figures below."""
    lines = []
    for each in results:
        lines.append(f"{each.verdict.state:<13}{each.name} ({each.seconds:.0f} s): {each.verdict.reason}")
        lines += [f"    {name}: {_figure(value)}" for name, value in each.verdict.figures.items()]
    counted = {state: sum(each.verdict.state == state for each in results) for state in (PASS, FAIL, NOT_POSSIBLE)}
    lines.append(", ".join(f"{count} {state}" for state, count in counted.items()))
    return "\n".join(lines) + "\n"


def succeeded(results: Sequence[Result]) -> bool:
    """Return whether every check passed."""
    return bool(results) and all(each.verdict.state == PASS for each in results)


def _write(file: Path, value: object) -> None:
    beside = file.with_name(f"{file.name}.new")
    beside.write_text(json.dumps(plain(value), indent=2, allow_nan=False))
    beside.replace(file)


def plain(value: object) -> Any:
    """Return a value as JSON has them: text as keys, null for what is no number, other things as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def _figure(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else json.dumps(value, default=str, ensure_ascii=False)


def _verdict(code: int | None, left: Path, log: Path, limit_s: float) -> Verdict:
    if left.exists():
        return Verdict(**json.loads(left.read_text()))
    said = log.read_text(errors="replace").strip()[-LAST_WORDS:]
    if code is None:
        return Verdict(FAIL, f"it was not done after {limit_s:.0f} s", {"last words": said})
    return Verdict(FAIL, f"its process ended with {code} and left no verdict", {"last words": said})


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and what it started, in other sessions too: a profiler left behind would disturb what follows."""
    try:
        started = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        started = []
    with suppress(ProcessLookupError, PermissionError):  # it is gone, and its group
        os.killpg(process.pid, signal.SIGKILL)
    for each in started:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()
    psutil.wait_procs(started, timeout=GONE_S)
