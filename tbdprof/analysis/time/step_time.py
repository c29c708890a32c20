"""Where the time of a step goes: a partition of its wall time by phase, and why the device idles (DESIGN section 6)."""

from dataclasses import dataclass

import numpy as np

from tbdprof.analysis.kernels.executions import Kernels
from tbdprof.analysis.time.timeline import DATA, PHASES, Timeline
from tbdprof.facts.records import Operation

NS = 1e9


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """A phase's part of a step; the phases of a step add up to it."""

    name: str
    seconds: float  # per step
    busy_seconds: float  # per step, of these with at least one kernel running
    share: float  # of the step


@dataclass(frozen=True, slots=True)
class Idle:
    """Why the device does not work, as shares of the step. What is not told is None.

    `total` is the time in which no kernel runs. `data_wait` is what of it is spent before forward, and the time in the
    framework's own data loader, operators of the loader included; `synchronization` is the rest of `total` in which the
    host is in a call that waits for the device; `launching` is what is left of it then: Python, dispatch.
    """

    total: float
    data_wait: float
    launching: float
    synchronization: float | None
    copies: float | None  # between host and device while nothing else runs
    communication: float | None  # while nothing else runs


@dataclass(frozen=True, slots=True)
class StepTime:
    """Where the time of a step goes."""

    step_seconds: float
    phases: tuple[PhaseTime, ...]
    idle: Idle
    covered: float  # kernels' own times over the wall time; above 1 where threads or streams work at once
    busy: float  # share of the wall time in which at least one kernel runs
    told_twice: float  # kernels' own times on one thread or stream beyond the time it was busy, over the wall time
    kernels: float  # a step; on a CPU operators, those that only keep books left out
    kernel_seconds: float | None  # of one on average, None: there is none


def step_time(kernels: Kernels, course: Timeline) -> StepTime:
    """Return where the time of the counted steps went."""
    wall, active, own = int(course.length_ns.sum()), course.total_ns(course.busy), int(kernels.own_ns.sum())
    working = kernels.operation != Operation.BOOKKEEPING
    count = int(working.sum())
    return StepTime(
        step_seconds=wall / kernels.steps / NS,
        phases=tuple(_phase(kernels, course, place, wall) for place in range(len(PHASES))),
        idle=_idle(kernels, course, wall),
        covered=own / wall,
        busy=active / wall,
        told_twice=_told_twice_ns(kernels) / wall,
        kernels=count / kernels.steps,
        kernel_seconds=float(kernels.own_ns[working].sum()) / count / NS if count else None,
    )


def _phase(kernels: Kernels, course: Timeline, place: int, wall: int) -> PhaseTime:
    mine = course.phase == place
    length = course.total_ns(mine)
    busy = course.total_ns(mine & course.busy)
    return PhaseTime(PHASES[place], length / kernels.steps / NS, busy / kernels.steps / NS, length / wall)


def _idle(kernels: Kernels, course: Timeline, wall: int) -> Idle:
    before_forward = course.phase == DATA
    on_gpu = kernels.device != "cpu"
    idle = ~before_forward & ~course.busy
    waits_told = len(kernels.wait_start_ns) > 0
    communicates = bool((kernels.operation == Operation.COMMUNICATION).any())
    return Idle(
        total=course.total_ns(~course.busy) / wall,
        data_wait=course.total_ns((before_forward & ~course.busy) | course.loading) / wall,
        launching=course.total_ns(idle & ~course.waiting) / wall,
        synchronization=course.total_ns(idle & course.waiting) / wall if waits_told else None,
        copies=course.total_ns(course.only_copies) / wall if on_gpu else None,
        communication=course.total_ns(course.only_communication) / wall if communicates else None,
    )


def _told_twice_ns(kernels: Kernels) -> int:
    """Return by how much own times exceed the time in which their thread or stream was busy.

    One thread or stream does one thing at a time, so that is 0 unless a kernel was told twice.
    """
    threads, counts = np.unique(kernels.thread_or_stream, return_counts=True)
    beyond = 0
    for thread, count in zip(threads, counts, strict=True):
        mine = slice(None) if count == len(kernels) else kernels.thread_or_stream == thread
        start, end = kernels.start_ns[mine], kernels.end_ns[mine]
        reached = np.maximum.accumulate(np.append(start[0], end))[:-1]
        union = int(np.maximum(end - np.maximum(start, reached), 0).sum())
        beyond += max(int(kernels.own_ns[mine].sum()) - union, 0)
    return beyond
