"""Which ceiling of the roofline is nearer."""

from tbdprof.facts.records import Peaks


def ridge(peaks: Peaks | None, precision: str | None, *, product: bool) -> float | None:
    """Return the FLOPs per byte at which the peaks of arithmetic and memory meet, or None if one is not known."""
    if peaks is None or precision is None or not peaks.bytes_per_s:
        return None
    flops_per_s = peaks.of(precision, product=product)
    return None if flops_per_s is None else flops_per_s / peaks.bytes_per_s


def nearer_ceiling(intensity: float | None, meeting: float | None) -> str | None:
    """Return which ceiling limits a kernel; its intensity and the meeting point are in FLOPs per byte."""
    if intensity is None or meeting is None:
        return None
    return "compute" if intensity >= meeting else "memory"
