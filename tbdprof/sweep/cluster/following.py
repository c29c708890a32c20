"""Run a sweep's points on a Ray cluster, by a process of its own that speaks with Ray.

Ray ends a process whose cluster goes away. So it runs in a process of its own (`driver`), which tells what happens in
lines of JSON, and this one can still say what to do.
"""

import json
import os
import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from tbdprof.collect import fresh
from tbdprof.errors import TbdprofError, UnavailableError, UsageError
from tbdprof.launch.processes import relay
from tbdprof.sweep.folder import Folder
from tbdprof.sweep.plan import Point
from tbdprof.sweep.watcher import Watcher

DRIVER = "tbdprof.sweep.cluster.driver"
BEGINS, LOST, ENDS, FAILS = "begins", "lost", "ends", "fails"  # the events that it tells
LOG = "ray.log"  # in the sweep's folder: what Ray printed
RAY = "ray"
_CLOSING_S = 5.0  # for the last lines of the process
_ERRORS = (UsageError, UnavailableError)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster: its address as typed, empty for the one that runs here; and the GPUs that each point asks for."""

    address: str = ""
    gpus: int | None = None  # None: one if the cluster has any and the point may use it

    @property
    def option(self) -> str:
        """Return the words of the command line that name it."""
        gpus = "" if self.gpus is None else f" --gpus {self.gpus}"
        return f"--on {shlex.quote(':'.join(filter(None, (RAY, self.address))))}{gpus}"


def cluster(text: str | None, gpus: int | None) -> Cluster | None:
    """Return the cluster that `--on` names; raise UsageError if it names none, or if it needs what is not installed."""
    if text is None:
        if gpus is not None:
            raise UsageError("--gpus is for a cluster: type --on ray, too")
        return None
    kind, _, address = text.partition(":")
    if kind != RAY:
        raise UsageError(f"--on is {text!r}: give ray, or ray:HOST:PORT")
    if find_spec("ray") is None:
        raise UnavailableError("--on ray needs Ray, which is not installed: pip install 'tbdprof[ray]'")
    return Cluster(f"ray:{address}" if address.startswith("//") else address, gpus)


def run(folder: Folder, watcher: Watcher, on: Cluster) -> None:
    """Run all points that have not ended on a cluster; one that failed in an earlier sweep is tried again.

    Raise UsageError if the cluster does not answer or has no machine for a point, UnavailableError if it goes away, and
    KeyboardInterrupt if a signal was to end this process. What has ended is kept.
    """
    order = json.dumps({"folder": str(folder.path.absolute()), **asdict(on)})
    following, log = _Following(folder, watcher), folder.path / LOG
    with TemporaryDirectory(prefix="tbdprof-", ignore_cleanup_errors=True) as name, log.open("w") as complaints:
        reading, writing = os.pipe()
        thread = Thread(target=following.read, args=(reading,), daemon=True)
        thread.start()
        with os.fdopen(writing, "w") as lines:
            ended = relay.run(fresh.command(DRIVER, order), os.environ, Path(name), lines, complaints)
        thread.join(_CLOSING_S)
    ended.raise_signal()
    if following.error is not None:
        raise following.error
    if ended.status:
        again = f"go on with: tbdprof sweep -o {shlex.quote(str(folder.path))} {on.option}"
        raise UnavailableError(f"the Ray cluster went away ({log} has what Ray said); {again}")


class _Following:
    """Passes on to a watcher what the process that speaks with Ray tells."""

    def __init__(self, folder: Folder, watcher: Watcher) -> None:
        self.error: TbdprofError | None = None
        self._folder, self._watcher = folder, watcher

    def read(self, handle: int) -> None:
        """Take each line until the last one; what is not the process's own is Ray's."""
        with os.fdopen(handle, errors="replace") as lines:
            for line in lines:
                with suppress(ValueError):
                    told = json.loads(line)
                    if isinstance(told, dict):
                        self._take(**told)

    def _take(self, event: str = "", point: Any = None, **rest: Any) -> None:
        if event == FAILS:
            kind = next(each for each in _ERRORS if each.exit_code == rest["code"])
            self.error = kind(rest["text"])
        elif event == BEGINS:
            self._watcher.begins(Point(**point), **rest)
        elif event == LOST:
            self._watcher.lost(Point(**point))
        elif event == ENDS:
            outcome = self._folder.outcome(Point(**point))
            if outcome is not None:
                self._watcher.ends(Point(**point), outcome)
