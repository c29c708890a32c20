"""What a caller says a step consumed, checked: numbers of any kind, but nothing that has to be waited for."""

from collections.abc import Mapping

import numpy as np

from tbdprof.errors import UsageError
from tbdprof.facts.consumed import Consumed

MOST = 2.0**53  # from here on a float no longer counts one by one
# Python converts these to a float without complaint, or with a guess.
_NO_NUMBERS = (bool, np.bool_, str, bytes, bytearray, np.character, np.complexfloating, np.datetime64, np.timedelta64)
_EXPECTED = "give every step the samples it consumed, 0 or more, or give none to any"


def consumed(units: object) -> Consumed:
    """Return what a step consumed, as floats; raise UsageError if it is no number from 0 to 2^53, or no `Consumed`.

    A number is whatever Python converts to a float. An array or tensor counts if it has no dimension and lies in the
    CPU's memory: to read another one would make the loop wait for the device.
    """
    try:
        if isinstance(units, Consumed):
            return Consumed(_number(units.units), _counts(units.also), _counts(units.padding), _counts(units.lengths))
        return Consumed(_number(units))
    except (_NoNumberError, AttributeError) as error:
        raise refusal(units, str(error)) from None


def refusal(units: object, reason: str = "") -> UsageError:
    """Return the error that says what `step` takes."""
    return UsageError(f"prof.step({_shown(units)}): {reason}{'; ' if reason else ''}{_EXPECTED}")


class _NoNumberError(Exception):
    """Report that a value does not count as a number."""


def _counts(values: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise _NoNumberError("counts are given by name, as in {'tokens': 512}")
    return {name: _number(value) for name, value in values.items()}


def _number(value: object) -> float:
    if isinstance(value, _NO_NUMBERS):
        raise _NoNumberError
    if _has_to_be_waited_for(value):
        raise _NoNumberError("reading an array of a device makes the loop wait for it, so count on the host")
    try:
        has_dimensions = bool(tuple(getattr(value, "shape", ())))
        is_number = any(kind in str(getattr(value, "dtype", "float")) for kind in ("int", "float"))
        number = -1.0 if has_dimensions or not is_number else float(value)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - a caller's own type may raise anything
        raise _NoNumberError from None
    if has_dimensions:
        raise _NoNumberError("an array is several numbers")
    if not 0 <= number <= MOST:  # also false for NaN
        raise _NoNumberError
    return number


def _has_to_be_waited_for(value: object) -> bool:
    """Return whether a value is an array that is computed elsewhere: on another device, or by MXNet's engine."""
    if type(value).__module__.partition(".")[0] == "mxnet":
        return True
    return "cpu" not in str(getattr(value, "device", "cpu")).lower()


def _shown(units: object) -> str:
    """Return a value as a short text; any other object is only named, because a tensor's text may wait for it."""
    if units is None or isinstance(units, float | np.number) or (isinstance(units, int) and units.bit_length() < 64):
        return str(units)
    if isinstance(units, str) and len(units) < 40:
        return repr(units)
    return "Consumed(...)" if isinstance(units, Consumed) else f"a {type(units).__name__}"
