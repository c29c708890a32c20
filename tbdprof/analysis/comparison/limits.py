"""Limits on figures, as they are typed: `throughput < -5%`, `peak_memory > 6 GiB`, `time.idle.total > 0.3`."""

import re
from collections.abc import Mapping

from tbdprof.analysis.comparison.names import BYTES, COUNT, RATE, SECONDS, SHARE, unit_of
from tbdprof.errors import UsageError
from tbdprof.results.compare import Limit

EXAMPLES = (
    "'throughput < -5%' (falls by more), 'peak_memory > +200 MiB' (grows by more), 'peak_memory > 6 GiB' (is more)"
)
_TYPED = re.compile(
    r"\s*(?P<figure>\S(?:.*\S)?)\s*(?P<operator><=|>=|<|>)\s*(?P<sign>[-+−]?)\s*"
    r"(?P<number>\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+)\s*(?P<unit>[^\d\s].*?)?\s*"
)
_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTP", 1)}
UNITS: Mapping[str, tuple[str, float]] = {  # what can be typed behind a number: the figure's unit, and how many of it
    **{f"{prefix}B": (BYTES, times) for prefix, times in {**_DECIMAL, "K": 1e3, **_BINARY}.items()},
    **{f"{prefix}{unit}": (unit, times) for unit in ("FLOP", "Hz", "J", "W") for prefix, times in _DECIMAL.items()},
    "ns": (SECONDS, 1e-9),
    "us": (SECONDS, 1e-6),
    "µs": (SECONDS, 1e-6),
    "ms": (SECONDS, 1e-3),
    "s": (SECONDS, 1.0),
    "min": (SECONDS, 60.0),
    "mJ": ("J", 1e-3),
    "mW": ("W", 1e-3),
}


def parse(text: str) -> Limit:
    """Return the limit that a text says; raise UsageError if it says none."""
    found = _TYPED.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--fail-if {text!r} is no limit: write FIGURE < NUMBER or FIGURE > NUMBER, such as {EXAMPLES}"
        )
    unit = found["unit"] or ""
    if unit != "%" and unit not in UNITS and unit and not unit.endswith("/s"):
        raise UsageError(f"--fail-if {text!r}: unknown unit {unit!r}: use %, B, KiB, MiB, GiB, µs, ms, s, J, W or FLOP")
    number = float(found["number"]) * (1 if found["sign"] in ("", "+") else -1)
    return Limit(text.strip(), found["figure"], found["operator"], number, unit, bool(found["sign"]))


def bound(limit: Limit, path: str) -> float:
    """Return the limit's number in the figure's unit, and of a change in percent as a fraction.

    Raise UsageError if the units do not fit.
    """
    unit = unit_of(path)
    if limit.unit == "%":
        if not limit.is_change and unit != SHARE:
            said = f"write +{limit.number:g}% or -{limit.number:g}% for a change relative to the baseline"
            raise UsageError(f"--fail-if {limit.text!r}: {limit.figure} is no share: {said}")
        return limit.number / 100
    if limit.unit.endswith("/s") and unit == RATE:
        return limit.number * UNITS.get(limit.unit.removesuffix("/s"), ("", 1.0))[1]
    kind, times = UNITS.get(limit.unit, (None if limit.unit else unit, 1.0))
    if kind != unit:
        names = {BYTES: "in bytes", SECONDS: "in seconds", SHARE: "a share", COUNT: "a plain number"}
        raise UsageError(
            f"--fail-if {limit.text!r}: {limit.figure} is {names.get(unit, f'in {unit}')}, not {limit.unit}"
        )
    return limit.number * times
