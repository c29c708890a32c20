"""Speaks with Ray in a process of its own: hands over points, brings their files home, and tells what happens.

A point is handed over once. If its machine is lost, it is handed over again, up to a limit. Everything else is for Ray
to decide: which machine runs a point, and when.
"""

import json
import os
import socket
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tbdprof.errors import TbdprofError, UnavailableError, UsageError
from tbdprof.results.sweep import End
from tbdprof.sweep import folder as folders
from tbdprof.sweep.cluster import machine
from tbdprof.sweep.cluster.following import BEGINS, ENDS, FAILS, LOST
from tbdprof.sweep.cluster.machine import Brought, Order
from tbdprof.sweep.cluster.needs import Machine, Need, need, slots
from tbdprof.sweep.folder import Folder
from tbdprof.sweep.outcome import MEMORY_FULL, Outcome
from tbdprof.sweep.plan import Point, as_json
from tbdprof.sweep.running import next_points, outcomes, total

MOST_LOSSES = 3  # of machines under one point
ANSWER_S = 10.0
NO_MACHINE_S = 30.0  # without any machine that could run a point
_PERIOD_S = 1.0
_RECONNECT_S = "20"
_CLIENT = "ray://"


def main(text: str) -> None:
    """Run the points of a folder that have not ended, on the cluster that is named."""
    given = json.loads(text)
    try:
        _connect(given["address"])
        _Sweep(folders.load(Path(given["folder"])), given["gpus"]).run()
    except TbdprofError as error:
        _tell(FAILS, text=str(error), code=error.exit_code)
        sys.exit(error.exit_code)


def _tell(event: str, point: Point | None = None, **rest: Any) -> None:
    about = {} if point is None else {"point": {"name": point.name, "settings": dict(point.settings)}}
    sys.stdout.write(json.dumps({"event": event, **about, **rest}) + "\n")
    sys.stdout.flush()


def _connect(address: str) -> None:
    """Connect with a cluster; raise UsageError if none answers."""
    if address:
        _check_answers(address)
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", _RECONNECT_S)
    try:
        import ray

        ray.init(address=address or "auto", log_to_driver=False, logging_level="error")
    except ImportError as error:
        raise UnavailableError(f"--on ray needs Ray, which cannot be imported: {error}") from error
    except (OSError, RuntimeError, ValueError) as error:
        if not address:
            raise UsageError(
                "no Ray cluster runs here: start one with `ray start --head`, or give its address: --on ray:HOST:PORT"
            ) from error
        raise UsageError(f"cannot join the Ray cluster at {address}: {_first_line(error)}") from error


def _check_answers(address: str) -> None:
    """Raise UsageError if nothing answers at an address: Ray would wait for a minute, and end this process."""
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"--on ray:{address}: give HOST:PORT, or ray://HOST:PORT for Ray's client")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"no Ray cluster answers at {address}: {why}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


class _Handed(NamedTuple):
    """A point that was handed over, and what it asked for."""

    point: Point
    need: Need


class _Sweep:
    """The points that were handed over, and how the others ended."""

    def __init__(self, folder: Folder, gpus: int | None) -> None:
        self._folder, self._gpus = folder, gpus
        self._known = {each.name: found for each, found in outcomes(folder) if found.is_result}
        self._handed: dict[Any, _Handed] = {}  # by Ray's reference to what the point will return
        self._losses: Counter[str] = Counter()
        self._had_room = time.monotonic()

    def run(self) -> None:
        """Hand over each point when it can be run, until all have ended."""
        import ray

        while True:
            handed = {each.point.name for each in self._handed.values()}
            for point in next_points(self._folder.plan, self._known):
                if point.name not in handed:
                    asked = need(self._folder.plan.program_at(point.settings), _machines(), self._gpus)
                    self._hand_over(_Handed(point, asked))
            if not self._handed:
                return
            done, _ = ray.wait([*self._handed], timeout=_PERIOD_S)
            for reference in done:
                self._take_back(reference, self._handed.pop(reference))
            self._check_machines()

    def _hand_over(self, handed: _Handed) -> None:
        import ray

        point, asked, plan = *handed, self._folder.plan
        task = ray.remote(num_cpus=asked.cpus, num_gpus=asked.gpus, max_retries=0)(machine.run)
        order = Order(as_json(plan), point.settings, os.fspath(Path.cwd()), os.environ.get(machine.THREADS))
        self._handed[task.remote(order)] = handed
        at_once = max(1, min(len(self._handed), slots(asked, _machines())))
        _tell(BEGINS, point, ended=len(self._known), total=total(plan), at_once=at_once)

    def _take_back(self, reference: Any, handed: _Handed) -> None:
        """Keep what a point returned; hand it over again if its machine was lost."""
        import ray

        point = handed.point
        try:
            brought = ray.get(reference)
        except ray.exceptions.OutOfMemoryError:
            self._keep(point, Outcome(End.OUT_OF_MEMORY, MEMORY_FULL))
        except ray.exceptions.RayTaskError as error:
            self._keep(point, Outcome(End.FAILED, _first_line(error.cause or error)))
        except ray.exceptions.RayError as error:
            self._lose(handed, _first_line(error))
        else:
            if brought is None:
                self._lose(handed, "a signal ended it")
            else:
                self._keep(point, _brought_home(brought, self._folder, point))

    def _lose(self, handed: _Handed, why: str) -> None:
        self._losses[handed.point.name] += 1
        if self._losses[handed.point.name] < MOST_LOSSES:
            _tell(LOST, handed.point)
            self._hand_over(handed)
        else:
            self._keep(handed.point, Outcome(End.FAILED, f"its machine was lost {MOST_LOSSES} times: {why}"))

    def _keep(self, point: Point, outcome: Outcome) -> None:
        try:
            self._folder.keep(point, outcome)
        except OSError as error:
            raise UnavailableError(f"cannot write {self._folder.points}: {error.strerror}") from error
        self._known[point.name] = outcome
        _tell(ENDS, point)

    def _check_machines(self) -> None:
        """Raise UnavailableError if for some time no machine could run a point that was handed over."""
        there, now = _machines(), time.monotonic()
        if not self._handed or any(slots(each.need, there) for each in self._handed.values()):
            self._had_room = now
        elif now - self._had_room > NO_MACHINE_S:
            raise UnavailableError("no machine of the Ray cluster can run a point any more; go on when one can")


def _machines() -> list[Machine]:
    import ray

    there = [each["Resources"] for each in ray.nodes() if each["Alive"]]
    return [Machine(each.get("CPU", 0.0), each.get("GPU", 0.0)) for each in there]


def _brought_home(brought: Brought, folder: Folder, point: Point) -> Outcome:
    """Write a point's files into the sweep's folder, and return how it ended, with the name of its machine."""
    for name, content in brought.files.items():
        path, part = folder.points / name, folder.points / f".{name}.part"
        try:
            part.write_bytes(content)
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise UnavailableError(f"cannot write {path}: {error.strerror}") from error
    return replace(brought.outcome, machine=_name_of(brought.node) or brought.outcome.machine)


def _name_of(node: str) -> str | None:
    """Return the name that a machine was given in the cluster (`ray start --node-name`), None if it was given none."""
    import ray

    found: dict[str, Any] = next((each for each in ray.nodes() if each["NodeID"] == node), {})
    name = found.get("NodeName")
    return None if name in (None, "", found.get("NodeManagerAddress")) else str(name)
