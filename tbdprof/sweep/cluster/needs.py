"""What a point asks a cluster for.

Points on one device would disturb each other. On a CPU the device is the whole machine, so a point asks for all its
cores; machines with more cores have some left, and there points wait for each other (`machine`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from tbdprof.errors import UsageError
from tbdprof.launch.request import RunRequest
from tbdprof.sweep.plan import Script


class Machine(NamedTuple):
    """What a machine of the cluster offers."""

    cpus: float
    gpus: float


class Need(NamedTuple):
    """What a point asks for."""

    cpus: float
    gpus: int


def need(program: RunRequest | Script, machines: Sequence[Machine], gpus: int | None) -> Need:
    """Return what a point asks for; `gpus` is what was typed. Raise UsageError if no machine has that."""
    asked = _gpus(program, machines, gpus)
    threads = program.threads or 1 if isinstance(program, RunRequest) else 1
    able = [each for each in machines if each.cpus >= threads and each.gpus >= asked]
    if not able:
        what = f"{threads} cores and {asked} GPUs" if asked else f"{threads} cores"
        most = max((f"{each.cpus:g} cores and {each.gpus:g} GPUs" for each in machines), default="nothing")
        raise UsageError(f"no machine of the Ray cluster has {what} for a point: the largest has {most}")
    return Need(threads, asked) if asked else Need(min(each.cpus for each in able), 0)


def _gpus(program: RunRequest | Script, machines: Sequence[Machine], gpus: int | None) -> int:
    device = program.device if isinstance(program, RunRequest) else "auto"
    if device.startswith("cuda:"):
        raise UsageError(f"--device is {device}, but Ray chooses the GPU of each point: type --device cuda")
    if device == "cpu":
        return 0
    if gpus is not None:
        return gpus
    return 1 if device == "cuda" or any(each.gpus >= 1 for each in machines) else 0


def slots(asked: Need, machines: Sequence[Machine]) -> int:
    """Return how many points that ask for so much can run at once."""
    return int(sum(_times(asked, each) for each in machines))


def _times(asked: Need, machine: Machine) -> float:
    on_cpus = machine.cpus // asked.cpus
    return min(on_cpus, machine.gpus // asked.gpus) if asked.gpus else min(on_cpus, 1)
