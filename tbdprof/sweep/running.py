"""Runs the points of a sweep one after another; what has ended is not run again."""

import json
import os
import platform
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from tbdprof.collect import fresh
from tbdprof.collect.host_memory import killed_for_memory
from tbdprof.launch.processes import relay
from tbdprof.results.sweep import End
from tbdprof.sweep.folder import Folder
from tbdprof.sweep.largest import Taken, next_size
from tbdprof.sweep.outcome import MEMORY_FULL, Outcome
from tbdprof.sweep.plan import Plan, Point, Script, Value
from tbdprof.sweep.watcher import Watcher

PROGRAM = "tbdprof.sweep.point"
RUNNING = ".running"  # a file beside the points' own, locked while one of them runs
_LAST_BYTES = 4096  # of a log, to find what its process said last


def run(folder: Folder, watcher: Watcher) -> None:
    """Run all points that have not ended; one that failed in an earlier sweep is tried again.

    Raise KeyboardInterrupt if a signal was to end this process: what has ended is kept, and the point that ran is not.
    """
    known = {each.name: found for each, found in outcomes(folder) if found.is_result}
    while (point := next(next_points(folder.plan, known), None)) is not None:
        watcher.begins(point, len(known), total(folder.plan))
        with TemporaryDirectory(prefix="tbdprof-", ignore_cleanup_errors=True) as name:
            known[point.name] = run_point(folder, point, Path(name), [folder.points.absolute() / RUNNING])
        watcher.ends(point, known[point.name])


def total(plan: Plan) -> int | None:
    """Return how many points there will be; None: as many as a search needs."""
    return None if plan.automatic else sum(1 for _ in plan.combinations())


def next_points(plan: Plan, known: Mapping[str, Outcome]) -> Iterator[Point]:
    """Yield the points that can be run now, from how others ended; of each search it is one."""
    for settings in plan.combinations():
        if plan.automatic is None:
            point = plan.point(settings)
            if point.name not in known:
                yield point
            continue
        size = _next_size(plan, settings, known)
        if size is not None:
            yield plan.point({**settings, plan.automatic: size})


def outcomes(folder: Folder) -> list[tuple[Point, Outcome]]:
    """Return the points of a sweep that have ended, in the order of its plan."""
    plan, found = folder.plan, []
    for settings in plan.combinations():
        sizes = [None] if plan.automatic is None else _sizes_on_disk(folder, settings)
        for size in sizes:
            point = plan.point(settings if size is None else {**settings, str(plan.automatic): size})
            outcome = folder.outcome(point)
            if outcome is not None:
                found.append((point, outcome))
    return found


def seconds(folder: Folder) -> list[float]:
    """Return how long the points that have ended took, as far as it is known."""
    return [outcome.seconds for _, outcome in outcomes(folder) if outcome.seconds]


def recordings(folder: Folder) -> dict[str, Path]:
    """Return the recordings of the points that finished, by the points' names."""
    finished = (point for point, outcome in outcomes(folder) if outcome.end is End.FINISHED)
    return {point.name: folder.recording(point) for point in finished}


def _next_size(plan: Plan, settings: Mapping[str, Value], known: Mapping[str, Outcome]) -> int | None:
    """Return the size that the search for the largest tries next; a point that failed ends it."""
    fits: dict[int, Taken] = {}
    failed: set[int] = set()
    while True:
        size = next_size(fits, frozenset(failed), plan.most)
        if size is None:
            return None
        outcome = known.get(plan.point({**settings, str(plan.automatic): size}).name)
        if outcome is None:
            return size
        if outcome.end is End.FAILED:
            return None
        if outcome.end is End.FINISHED:
            fits[size] = Taken(outcome.took_bytes, outcome.room_bytes)
        else:
            failed.add(size)


def _sizes_on_disk(folder: Folder, settings: Mapping[str, Value]) -> list[int]:
    """Return the sizes of a search that have files, ascending."""
    plan = folder.plan
    before = plan.point({**settings, str(plan.automatic): 0}).name.removesuffix("0")
    names = [path.stem.removeprefix(before) for path in folder.points.glob("*.json") if path.stem.startswith(before)]
    return sorted(int(name) for name in names if name.isdecimal())


def run_point(
    folder: Folder,
    point: Point,
    scratch: Path,
    locks: Sequence[Path],
    environment: Mapping[str, str] = os.environ,
) -> Outcome:
    """Run a point in a process of its own, and return how it ended; if this process is killed, `scratch` is removed.

    Points that name one of the same `locks` wait for each other: the process of one whose sweep was killed may still be
    at work. Raise KeyboardInterrupt if a signal was to end this process.
    """
    began, killed_before = time.monotonic(), killed_for_memory()
    folder.forget(point)
    order = _order(folder.plan, point, folder.points.absolute(), locks)
    with folder.log(point).open("w") as log:
        ended = relay.run(fresh.command(PROGRAM, order), environment, scratch, log, log)
    ended.raise_signal()
    outcome = folder.outcome(point)
    if outcome is None:
        full = ended.status == -signal.SIGKILL and killed_for_memory() > killed_before
        end = End.OUT_OF_MEMORY if full else End.FAILED
        reason = MEMORY_FULL if full else _why(ended.status, folder.log(point))
        outcome = Outcome(end, reason, time.monotonic() - began, platform.node())
        folder.keep(point, outcome)
    return outcome


def _why(status: int, log: Path) -> str:
    """Return why a process left no outcome, with what it printed last."""
    how = (
        f"its process was killed by {signal.Signals(-status).name}"
        if status < 0
        else f"its process ended with {status}"
    )
    lines = log.read_bytes()[-_LAST_BYTES:].decode(errors="replace").strip().splitlines()
    return f"{how}: {lines[-1].strip()}" if lines else how


def _order(plan: Plan, point: Point, folder: Path, locks: Sequence[Path]) -> str:
    """Return what `sweep.point` is to run, where its files go, and what it waits for, as text."""
    program = plan.program_at(point.settings)
    kind, text = (
        ("script", json.dumps(asdict(program))) if isinstance(program, Script) else ("model", program.to_json())
    )
    files = {"folder": str(folder), "name": point.name, "locks": [str(path) for path in locks]}
    return json.dumps({"kind": kind, "program": text, "losses": plan.loss_steps, **files})
