"""Where the time of a step goes: a partition of its wall time by phase, and why the device idles."""

import numpy as np

from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.time.timeline import DATA, PHASES, Timeline
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import Operation
from tbdprof.results.found import Found, reasons
from tbdprof.results.reasons import GPU_ONLY, NO_BYTES, NO_COMMUNICATION, NO_WAIT
from tbdprof.results.time import Communication, Idle, PhaseTime, StepTime

NS = 1e9
COUNTED_TWICE = 0.001  # share of the step; clocks of microseconds cause a little overlap


def step_time(kernels: Kernels, course: Timeline) -> Found[StepTime]:
    """Return where the time of the counted steps went."""
    wall, active, own = int(course.length_ns.sum()), course.total_ns(course.busy), int(kernels.own_ns.sum())
    working = kernels.operation != Operation.BOOKKEEPING
    count = int(working.sum())
    found = StepTime(
        step_seconds=wall / kernels.steps / NS,
        phases=tuple(_phase(kernels, course, place, wall) for place in range(len(PHASES))),
        idle=_idle(kernels, course, wall),
        covered=own / wall,
        busy=active / wall,
        overlap=_overlap_ns(kernels) / wall,
        kernels=count / kernels.steps,
        communication=_communication(kernels, course, wall),
        kernel_seconds=float(kernels.own_ns[working].sum()) / count / NS if count else None,
    )
    return Found(found, _missing(found, kernels.device), _remarks(found))


def _missing(found: StepTime, device: str) -> dict[str, str]:
    """Return the reason for each share of idle time that is not known, and for what is not of communication."""
    idle, sent = found.idle, found.communication
    unseen = GPU_ONLY if device == "cpu" else NO_WAIT
    return reasons(
        {
            "idle.synchronization": (idle.synchronization, unseen),
            "idle.copies": (idle.copies, unseen),
            "idle.communication": (idle.communication, NO_COMMUNICATION),
            "communication": (sent, NO_COMMUNICATION),
            "communication.sent_bytes": (0 if sent is None else sent.sent_bytes, NO_BYTES),
        }
    )


def _remarks(found: StepTime) -> dict[str, str]:
    if found.overlap <= COUNTED_TWICE:
        return {}
    remark = f"kernels of one thread or stream overlap by {100 * found.overlap:.1f} % of the step"
    return {RemarkOn.KERNELS_TWICE: remark}


def _phase(kernels: Kernels, course: Timeline, place: int, wall: int) -> PhaseTime:
    mine = course.phase == place
    length = course.total_ns(mine)
    busy = course.total_ns(mine & course.busy)
    return PhaseTime(PHASES[place], length / kernels.steps / NS, busy / kernels.steps / NS, length / wall)


def _idle(kernels: Kernels, course: Timeline, wall: int) -> Idle:
    before_forward = course.phase == DATA
    on_gpu = kernels.device != "cpu"
    waits = ~course.busy & ~course.only_communication
    idle = waits & ~before_forward
    has_waits = len(kernels.wait_start_ns) > 0
    communicates = bool((kernels.operation == Operation.COMMUNICATION).any())
    return Idle(
        total=course.total_ns(~course.busy) / wall,
        data_wait=course.total_ns((before_forward & waits) | course.loading) / wall,
        launching=course.total_ns(idle & ~course.waiting) / wall,
        synchronization=course.total_ns(idle & course.waiting) / wall if has_waits else None,
        copies=course.total_ns(course.only_copies) / wall if on_gpu else None,
        communication=course.total_ns(course.only_communication) / wall if communicates else None,
    )


def _communication(kernels: Kernels, course: Timeline, wall: int) -> Communication | None:
    sends = kernels.operation == Operation.COMMUNICATION
    if not sends.any():
        return None
    length = course.total_ns(course.communicating)
    sent = kernels.moved_bytes[sends & np.isfinite(kernels.moved_bytes)]
    return Communication(
        seconds=length / kernels.steps / NS,
        exposed=course.total_ns(course.only_communication) / wall,
        hidden=course.total_ns(course.communicating & ~course.only_communication) / wall,
        sent_bytes=round(float(sent.sum()) / kernels.steps) if len(sent) else None,
    )


def _overlap_ns(kernels: Kernels) -> int:
    """Return by how much own times exceed the busy time of their thread or stream.

    One thread or stream does one thing at a time, so the result is 0 unless a kernel was double counted.
    """
    threads, counts = np.unique(kernels.thread_or_stream, return_counts=True)
    beyond = 0
    for thread, count in zip(threads, counts, strict=True):
        mine = slice(None) if count == len(kernels) else kernels.thread_or_stream == thread
        start, end = kernels.start_ns[mine], kernels.end_ns[mine]
        length = np.append(start[:1], end[:-1])
        np.maximum.accumulate(length, out=length)  # the latest end before
        np.maximum(start, length, out=length)
        np.subtract(end, length, out=length)
        union = int(np.maximum(length, 0, out=length).sum())
        beyond += max(int(kernels.own_ns[mine].sum()) - union, 0)
    return beyond
