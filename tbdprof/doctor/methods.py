"""Which levels of measurement of a GPU work here: each is tried, and answers for itself.

From the lowest to the highest: `device` (the driver's account of power, clocks and use), `activity` (kernels and copies
with their times), `analytic` (FLOPs of operators against the device's known peak), `sampled` (hardware counters sampled
many times a step), `counted` (exact counters of one step).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tbdprof.collect import fresh
from tbdprof.collect.gpu import nvidia
from tbdprof.errors import UnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    from tbdprof.collect.gpu.cuda_driver import Limits
    from tbdprof.collect.gpu.nvml_card import Card

LIMIT_S = 10.0  # of a probe
EXACT = "tbdprof run MODEL --framework FRAMEWORK --exact"
UNLOCK = (
    "put 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into a file of /etc/modprobe.d and load the driver "
    "again, or run as root"
)
DRIVER = "install NVIDIA's driver, or start the container with --gpus all"
NO_NCU = "Nsight Compute (ncu) is not found"
# What to do about a reason, by a part of it; the first that fits.
REMEDIES = {
    "NVreg_RestrictProfilingToAdminUsers": UNLOCK,
    "nsufficient": UNLOCK,  # the driver's "Insufficient Permissions"
    "libcuda": DRIVER,
    "no NVIDIA driver": DRIVER,
    "driver does not answer": DRIVER,
    "cupti-python": "pip install 'tbdprof[counters]'",
    "can use a GPU": "install a framework's build for CUDA",
    NO_NCU: "install Nsight Compute (NVIDIA's package cuda-nsight-compute), or put its ncu on the PATH",
}


@dataclass(frozen=True, slots=True)
class Level:
    """One level: whether it works (None: only trying it on a run would tell), its probe's answer, what would help."""

    name: str
    works: bool | None
    answer: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """Which device was looked at; None: the driver does not tell."""

    device: str  # as the frameworks number it
    name: str | None = None
    number: int | None = None  # as nvidia-smi numbers it
    count: int | None = None  # devices that a process sees


@dataclass(frozen=True, slots=True)
class Levels:
    """All levels from the lowest up, the highest that works, and what would raise it; None: there is none."""

    found: tuple[Level, ...]
    highest: str | None
    raised_by: str | None


def examine(own: Mapping[str, str | None], index: int = 0) -> Levels:
    """Try every level on a device, in fresh processes; takes some seconds, half a minute where all hangs.

    `own` has the frameworks here that record a GPU's activity themselves, each with why it cannot, None where it can.
    """
    with ThreadPoolExecutor(len(_PROBES)) as together:
        told = dict(zip(_PROBES, together.map(lambda name: _apart(name, index), _PROBES), strict=True))
    of_cupti = activity(own, told["cupti"].answer or None)
    return judged((told["device"], of_cupti, told["analytic"], sampled(index), counted()))


def judged(found: tuple[Level, ...]) -> Levels:
    """Return levels with the highest that works and what is to be done for the next one above."""
    at = max((place for place, level in enumerate(found) if level.works), default=-1)
    raised_by = next((level.remedy for level in found[at + 1 :] if level.remedy), None)
    if at == len(found) - 1:
        raised_by = EXACT  # there is none above it, but it is not on by itself
    return Levels(found, found[at].name if at >= 0 else None, raised_by)


def look_at(index: int) -> Subject:
    """Say which device a number of the frameworks' stands for, asked in a process of its own."""
    try:
        return Subject(**fresh.ask(__name__, (_SUBJECT, index), LIMIT_S))
    except UnavailableError:  # the levels say why, each for itself
        return Subject(f"cuda:{index}")


def subject(index: int, nvml: Any = None, cuda: Any = None) -> Subject:
    """Say the same in this process; `nvml` and `cuda` stand in for the driver's libraries.

    Raises UnavailableError where there is no driver.
    """
    from tbdprof.collect.gpu import cuda_driver
    from tbdprof.collect.gpu.nvml_card import open_card, shut

    count, name, number = cuda_driver.count(cuda), None, None
    with suppress(UnavailableError):
        name = cuda_driver.limits(index, cuda).name
    with suppress(UnavailableError):
        card = open_card(index, nvml, cuda)
        with suppress(*card.faults):
            number = int(card.nvml.nvmlDeviceGetIndex(card.whole))
        shut(card.nvml)
    return Subject(f"cuda:{index}", name, number, count)


def device(index: int, nvml: Any = None, cuda: Any = None) -> Level:
    """Say whether the driver tells about a device; `nvml` and `cuda` stand in for its libraries."""
    from tbdprof.collect.gpu.nvml_card import open_card, shut

    try:
        card = open_card(index, nvml, cuda)
    except UnavailableError as error:
        return _refused("device", str(error))
    try:
        told = dict(_told(card))
    finally:
        shut(card.nvml)
    works = any(answer == "yes" for name, answer in told.items() if name != "GPM")
    answer = "; ".join(f"{name}: {answer}" for name, answer in told.items())
    return Level("device", True, answer) if works else _refused("device", answer)


def cupti(index: int, module: Any = None) -> Level:
    """Say whether cupti-python can record here; the answer is why not, "" where it can."""
    from tbdprof.collect.activity import collector as collector

    reason = collector.available(module)
    return Level("activity", reason is None, reason or "")


def activity(own: Mapping[str, str | None], reason: str | None) -> Level:
    """Say who records kernels; `reason` is why cupti-python does not, for frameworks that do not do it themselves."""
    answers = [f"{name}: {refusal or 'its own profiler'}" for name, refusal in own.items()]
    answer = "; ".join([*answers, f"others: {reason or 'cupti-python'}"])
    if reason is None or None in own.values():
        return Level("activity", True, answer)
    return _refused("activity", answer if own else f"no framework here can use a GPU; {answer}")


def analytic(index: int, limits: "Callable[[int], Limits] | None" = None) -> Level:
    """Say whether a device's peak is known; `limits` stands in for the driver's answer."""
    from tbdprof.collect.gpu import cuda_driver, devices

    try:
        told = (limits or cuda_driver.limits)(index)
        peaks = devices.peaks(told.name, told.capability, multiprocessors=told.multiprocessors, clock_hz=told.clock_hz)
    except UnavailableError as error:
        return _refused("analytic", str(error))
    known = ", ".join(f"{name} {flops / 1e12:.1f}" for name, flops in peaks.flops_per_s.items())
    return Level("analytic", True, f"{told.name}: peaks in TFLOP/s: {known}")


def sampled(index: int, available: Callable[[str], str | None] | None = None) -> Level:
    """Say whether hardware counters can be sampled; `available` stands in for trying it."""
    if available is None:
        from tbdprof.collect.pm.collector import available as trying

        available = trying
    reason = available(f"cuda:{index}")
    return Level("sampled", True, "counters were opened") if reason is None else _refused("sampled", reason)


def counted(find: "Callable[[], Path | None] | None" = None, counters: nvidia.Counters | None = None) -> Level:
    """Say whether Nsight Compute is here and permitted; `find` and `counters` stand in for looking."""
    if find is None:
        from tbdprof.collect.ncu import find as looking

        find = looking
    tool, counters = find(), counters or nvidia.counters()
    if tool is None:
        return _refused("counted", NO_NCU)
    if counters.readable:
        return Level("counted", True, f"{tool}, and counters may be read")
    told = _refused("counted", f"{tool}, but {counters.reason}")
    is_open = counters.readable is None and told.remedy is None
    return Level("counted", None, told.answer) if is_open else told


def main(probe: tuple[str, int]) -> None:
    """Print a probe's answer as JSON."""
    name, index = probe
    answer = subject(index) if name == _SUBJECT else _PROBES[name](index)
    print(json.dumps(asdict(answer)))  # noqa: T201 - how a fresh process answers


_SUBJECT = "subject"
_PROBES: Mapping[str, Callable[[int], Level]] = {"device": device, "cupti": cupti, "analytic": analytic}


def _apart(name: str, index: int, limit_s: float = LIMIT_S) -> Level:
    """Return what a probe answers in a process of its own, which it may crash or hang."""
    try:
        return Level(**fresh.ask(__name__, (name, index), limit_s))
    except UnavailableError as error:
        return _refused(name, str(error))


def _refused(name: str, answer: str) -> Level:
    return Level(name, False, answer, next((what for part, what in REMEDIES.items() if part in answer), None))


def _told(card: "Card") -> Iterator[tuple[str, str]]:
    """Ask for each of the driver's figures once; yield its name, and "yes" or the refusal."""
    from tbdprof.collect.gpu.nvml_card import Power, energy, sm_clock
    from tbdprof.collect.gpu.nvml_stretches import Gpm

    questions: dict[str, Callable[[], object]] = {
        "power": lambda: Power(card).read(0),
        "energy": lambda: list(energy(card)),
        "SM clock": lambda: list(sm_clock(card)),
        "GPM": lambda: Gpm(card, lambda: 0).free(),
    }
    caught: tuple[type[Exception], ...] = (UnavailableError, *card.faults)
    for name, ask in questions.items():
        try:
            ask()
        except caught as error:
            yield name, str(error)
        else:
            yield name, "yes"
