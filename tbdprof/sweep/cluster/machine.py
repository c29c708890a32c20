"""Runs one point on a machine of a cluster, and returns its files."""

import os
import platform
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tbdprof.results.sweep import End
from tbdprof.sweep.folder import Folder
from tbdprof.sweep.outcome import Outcome
from tbdprof.sweep.plan import Settings, from_json
from tbdprof.sweep.running import run_point

THREADS = "OMP_NUM_THREADS"  # Ray sets it to the number of cores that a task asked for
_GPUS = "CUDA_VISIBLE_DEVICES"  # Ray sets it to the GPUs that a task got


class Order(NamedTuple):
    """What a machine is to run."""

    plan: str
    settings: Settings
    folder: str  # the current one
    threads: str | None  # the value of THREADS that the user set


class Brought(NamedTuple):
    """What a point left: its files by name, how it ended, and Ray's number of the machine."""

    files: Mapping[str, bytes]
    outcome: Outcome
    node: str


def run(order: Order) -> Brought | None:
    """Run a point in a process of its own; None: a signal was to end this one."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    try:
        os.chdir(order.folder)
    except OSError as error:
        reason = (
            f"{platform.node()} cannot enter {order.folder}: {error.strerror}; sweep in a folder that is there, too"
        )
        return Brought({}, Outcome(End.FAILED, reason, None, platform.node()), node)
    plan = from_json(order.plan.encode())
    with TemporaryDirectory(prefix="tbdprof-", ignore_cleanup_errors=True) as name:
        folder = Folder(Path(name), plan)
        folder.points.mkdir()
        try:
            point = plan.point(order.settings)
            outcome = run_point(folder, point, folder.path, [*_locks()], _environment(order))
        except KeyboardInterrupt:
            return None
        folder.forget(point)  # the outcome goes by itself: it is written last, where the sweep is
        return Brought({path.name: path.read_bytes() for path in _files(folder)}, outcome, node)


def _environment(order: Order) -> dict[str, str]:
    """Return the environment without the number of threads that Ray set."""
    rest = {name: value for name, value in os.environ.items() if name != THREADS}
    return rest if order.threads is None else {**rest, THREADS: order.threads}


def _locks() -> Iterator[Path]:
    """Yield a file of this machine for each device that the point may use."""
    gpus = [each for each in os.environ.get(_GPUS, "").split(",") if each.isalnum()]
    for device in [f"gpu{each}" for each in gpus] or ["cpu"]:
        yield Path(tempfile.gettempdir(), f"tbdprof-{os.getuid()}-{device}.lock")


def _files(folder: Folder) -> list[Path]:
    return [path for path in folder.points.iterdir() if path.is_file() and not path.name.startswith(".")]
