"""Captions: what a figure shows, on which device, with which programs, and how it was measured."""

from collections.abc import Iterable, Sequence

from tbdprof.results.sweep import End, PointFigures, Sweep

SAYS = {
    4: "Training throughput by batch size, with 95 % intervals, in the clean windows, where nothing is watched.",
    5: "Share of the time in which the device is busy, by batch size: time in kernels per step of the kernels windows "
    "over the time per step of the clean ones.",
    6: "FP32 utilization by batch size: FLOPs of matrix multiplications and convolutions over the time in which the "
    "device is busy and its peak.",
    7: "Two devices, at the largest batch that both ran: throughput over that of the first, busy, FP32 utilization.",
    8: "Memory at the peak by category and batch size, as the framework's allocator gave it.",
}
OF_CPU = "On a CPU, operators stand for kernels."
FULL = "× marks a batch that ran out of memory."
AFTER = "Arrangement as in figure {} of the TBD paper (Zhu et al., 2018)."


def caption(number: int, sweeps: Sequence[Sweep]) -> str:
    """Return the caption of a figure."""
    figures = [point.figures for sweep in sweeps for point in sweep.points if point.figures is not None]
    full = any(point.end is End.OUT_OF_MEMORY for sweep in sweeps for point in sweep.points)
    parts = [
        SAYS[number],
        f"Device: {_joined(each.device for each in figures)}.",
        f"Framework: {_joined(each.framework for each in figures)}; {_setting(figures)}.",
        OF_CPU if number in (5, 6, 7) and not all(each.on_gpu for each in figures) else "",
        FULL if full and number != 7 else "",
        _crowd(figures) if number != 8 else "",
        AFTER.format(number),
    ]
    return " ".join(filter(None, parts))


def _crowd(figures: Sequence[PointFigures]) -> str:
    """Return how many points other processes disturbed: their times are not those of the training alone."""
    crowded = sum(each.disturbed is True for each in figures)
    return f"Other processes took cores while {crowded} of {len(figures)} points were measured." if crowded else ""


def _setting(figures: Sequence[PointFigures]) -> str:
    precisions = _joined(each.precision or "precision not known" for each in figures)
    threads = sorted({each.threads for each in figures if each.threads is not None and not each.on_gpu})
    said = f", {_joined(map(str, threads))} CPU thread{'s' * (threads != [1])}" if threads else ""
    return f"{precisions}{said}"


def _joined(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words)) or "none"
