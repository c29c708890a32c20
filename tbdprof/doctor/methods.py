"""Which levels of measurement work here; each level is tried separately, on a GPU.

From the lowest to the highest they are: `device` (the driver's figures for power, clocks and use); `activity` (kernels
and copies with their times). Then `analytic` (FLOPs of operators against the device's known peak), `sampled` (hardware
counters sampled many times per step), and `counted` (exact counters of one step).
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

LIMIT_S = 10.0  # for each probe
EXACT = "tbdprof run MODEL --framework FRAMEWORK --exact"
UNLOCK = (
    "put 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into a file of /etc/modprobe.d and load the driver "
    "again, or run as root"
)
DRIVER = "install NVIDIA's driver, or start the container with --gpus all"
NO_NCU = "Nsight Compute (ncu) is not found"
# The remedy for a reason, by a part of the reason's text; the first match counts.
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
    """One level: whether it works (None if only a run can show it), its probe's answer, and the remedy."""

    name: str
    works: bool | None
    answer: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """The device that was examined; a field is None if the driver does not report it."""

    device: str  # as the frameworks number it
    name: str | None = None
    number: int | None = None  # as nvidia-smi numbers it
    count: int | None = None  # number of devices that a process sees


@dataclass(frozen=True, slots=True)
class Levels:
    """All levels from the lowest up, the highest that works, and what would raise it (None if there is none)."""

    found: tuple[Level, ...]
    highest: str | None
    raised_by: str | None


def examine(own: Mapping[str, str | None], index: int = 0) -> Levels:
    """Try every level on a device, in fresh processes.

    This takes some seconds, or half a minute if all probes hang. `own` holds the frameworks that record a GPU's
    activity themselves, each with the reason why it cannot, or None if it can.
    """
    with ThreadPoolExecutor(len(_PROBES)) as together:
        levels = dict(zip(_PROBES, together.map(lambda name: _apart(name, index), _PROBES), strict=True))
    of_cupti = activity(own, levels["cupti"].answer or None)
    return judged((levels["device"], of_cupti, levels["analytic"], sampled(index), counted()))


def judged(found: tuple[Level, ...]) -> Levels:
    """Return the levels with the highest that works, and what to do for the next one above."""
    at = max((place for place, level in enumerate(found) if level.works), default=-1)
    raised_by = next((level.remedy for level in found[at + 1 :] if level.remedy), None)
    if at == len(found) - 1:
        raised_by = EXACT  # no level is above it, but it is off by default
    return Levels(found, found[at].name if at >= 0 else None, raised_by)


def look_at(index: int) -> Subject:
    """Return the GPU with this number, as a process of its own sees it."""
    try:
        return Subject(**fresh.ask(__name__, (_SUBJECT, index), LIMIT_S))
    except UnavailableError:  # each level says why
        return Subject(f"cuda:{index}")


def subject(index: int, nvml: Any = None, cuda: Any = None) -> Subject:
    """Return the GPU with this number, as this process sees it; `nvml` and `cuda` replace the driver's libraries.

    Raise UnavailableError if there is no driver.
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
    """Return whether the driver reports on a device; `nvml` and `cuda` replace its libraries."""
    from tbdprof.collect.gpu.nvml_card import open_card, shut

    try:
        card = open_card(index, nvml, cuda)
    except UnavailableError as error:
        return _refused("device", str(error))
    try:
        answers = dict(_answers(card))
    finally:
        shut(card.nvml)
    works = any(answer == "yes" for name, answer in answers.items() if name != "GPM")
    answer = "; ".join(f"{name}: {answer}" for name, answer in answers.items())
    return Level("device", True, answer) if works else _refused("device", answer)


def cupti(index: int, module: Any = None) -> Level:
    """Return whether cupti-python can record here; the answer says why not, and is "" if it can."""
    from tbdprof.collect.activity import collector as collector

    reason = collector.available(module)
    return Level("activity", reason is None, reason or "")


def activity(own: Mapping[str, str | None], reason: str | None) -> Level:
    """Return what records kernels; `reason` says why cupti-python cannot, for frameworks without their own records."""
    answers = [f"{name}: {refusal or 'its own profiler'}" for name, refusal in own.items()]
    answer = "; ".join([*answers, f"others: {reason or 'cupti-python'}"])
    if reason is None or None in own.values():
        return Level("activity", True, answer)
    return _refused("activity", answer if own else f"no framework here can use a GPU; {answer}")


def analytic(index: int, limits: "Callable[[int], Limits] | None" = None) -> Level:
    """Return whether a device's peak is known; `limits` replaces the driver's answer.

    Without a GPU it is the level of the CPU, whose peak a run measures.
    """
    from tbdprof.collect.gpu import cuda_driver, devices

    try:
        chip = (limits or cuda_driver.limits)(index)
    except UnavailableError as error:
        return Level("analytic", True, f"on the CPU; no GPU: {error}")
    try:
        peaks = devices.peaks(
            chip.name,
            chip.capability,
            multiprocessors=chip.multiprocessors,
            clock_hz=chip.clock_hz,
        )
    except UnavailableError as error:
        return _refused("analytic", str(error))
    known = ", ".join(f"{name} {flops / 1e12:.1f}" for name, flops in peaks.flops_per_s.items())
    return Level("analytic", True, f"{chip.name}: peaks in TFLOP/s: {known}")


def sampled(index: int, available: Callable[[str], str | None] | None = None) -> Level:
    """Return whether hardware counters can be sampled; `available` replaces the attempt."""
    if available is None:
        from tbdprof.collect.pm.collector import available as trying

        available = trying
    reason = available(f"cuda:{index}")
    return Level("sampled", True, "counters were opened") if reason is None else _refused("sampled", reason)


def counted(find: "Callable[[], Path | None] | None" = None, counters: nvidia.Counters | None = None) -> Level:
    """Return whether Nsight Compute is here and permitted; `find` and `counters` replace the look-up."""
    if find is None:
        from tbdprof.collect.ncu import find as looking

        find = looking
    tool, counters = find(), counters or nvidia.counters()
    if tool is None:
        return _refused("counted", NO_NCU)
    if counters.readable:
        return Level("counted", True, f"{tool}, and counters may be read")
    level = _refused("counted", f"{tool}, but {counters.reason}")
    is_open = counters.readable is None and level.remedy is None
    return Level("counted", None, level.answer) if is_open else level


def main(probe: tuple[str, int]) -> None:
    """Print a probe's answer as JSON."""
    name, index = probe
    answer = subject(index) if name == _SUBJECT else _PROBES[name](index)
    print(json.dumps(asdict(answer)))  # noqa: T201 - how a fresh process answers


_SUBJECT = "subject"
_PROBES: Mapping[str, Callable[[int], Level]] = {"device": device, "cupti": cupti, "analytic": analytic}


def _apart(name: str, index: int, limit_s: float = LIMIT_S) -> Level:
    """Return a probe's answer from a process of its own, because a probe may crash or hang."""
    try:
        return Level(**fresh.ask(__name__, (name, index), limit_s))
    except UnavailableError as error:
        return _refused(name, str(error))


def _refused(name: str, answer: str) -> Level:
    return Level(name, False, answer, next((what for part, what in REMEDIES.items() if part in answer), None))


def _answers(card: "Card") -> Iterator[tuple[str, str]]:
    """Read each of the driver's figures once; yield its name, and "yes" or the refusal."""
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
