"""The sampled use of a device's pipes as text."""

from tbdprof.facts.counters import PM_DRAM, PM_FP32, PM_FP32_LITE, PM_TENSOR
from tbdprof.facts.units import percent_text
from tbdprof.results.sampled import (
    LITE_PART,
    Estimate,
    NamedUse,
    Sampled,
    Use,
)


def line(found: Sampled) -> str:
    """Return the use of the pipes over the whole window while kernels ran, empty if none is known."""
    use = found.while_busy
    low = LITE_PART * use[PM_FP32_LITE] if PM_FP32_LITE in use else None
    named = (
        ("FP32 pipe", _between(low, use.get(PM_FP32))),
        ("tensor pipe", _between(None, use.get(PM_TENSOR))),
        ("memory", _between(None, use.get(PM_DRAM))),
    )
    listed = ", ".join(f"{name} {text}" for name, text in named if text)
    return f"{listed} while busy ({found.samples} samples)" if listed else ""


def cells(found: NamedUse | None) -> tuple[str, str]:
    """Return the use of the FP32 and the tensor pipe by the kernels of one name and phase, empty if not known."""
    return ("", "") if found is None else (fp32_text(found.use), use_text(found.use.tensor))


def fp32_text(use: Use) -> str:
    """Return the use of the FP32 pipe from its lower to its upper bound, empty if not known."""
    return _between(None if use.fp32_low is None else use.fp32_low.value, None if use.fp32 is None else use.fp32.value)


def use_text(found: Estimate | None) -> str:
    """Return a use as a percentage, empty if not known."""
    return _between(None, None if found is None else found.value)


def _between(low: float | None, high: float | None) -> str:
    if high is None:
        return ""
    upper, least = percent_text(high), "" if low is None else percent_text(low)
    return upper if least in ("", upper) else f"{least.removesuffix(' %')}–{upper}"
