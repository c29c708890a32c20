"""What callers pass to `tbdprof.profile`, checked at the call: each check returns the value or raises UsageError."""

import operator
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tbdprof.errors import UsageError
from tbdprof.facts.units import with_article

MOST = 10**9  # of steps, samples and repetitions: more is a slip of the hand
MOST_NAME_BYTES = 230  # 255 is a file system's limit, and other names are made from this one
PRECISIONS = ("fp32", "tf32", "fp64", "bf16", "fp16")
_OF_NO_MODEL = ("builtins", "numpy")  # modules none of whose types can be trained


def whole_number(name: str, value: object, least: int) -> int:
    """Return a whole number of any integer type from `least` to 10^9."""
    number = _whole(value, least)
    if number is None:
        raise UsageError(f"{name} is {_shown(value)}: give a whole number from {least} to {MOST}")
    return number


def optional_number(name: str, value: object, least: int) -> int | None:
    """Return a whole number, or None."""
    return None if value is None else whole_number(name, value, least)


def warmup_steps(value: object) -> int | None:
    """Return the steps of the warm-up, or None for "auto"."""
    if isinstance(value, str) and value == "auto":
        return None
    number = _whole(value, 0)
    if number is None:
        raise UsageError(f'warmup is {_shown(value)}: give "auto" or a number of steps from 0 to {MOST}')
    return number


def text(name: str, value: object) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{name} is {_shown(value)}: give a text that is not empty")
    return str(value)


def optional_text(name: str, value: object) -> str | None:
    """Return a text that is not empty, or None."""
    return None if value is None else text(name, value)


def yes_or_no(name: str, value: object) -> bool:
    """Return a truth value; 0 and 1 count, too."""
    if not isinstance(value, bool | np.bool_ | int) or value not in (0, 1):
        raise UsageError(f"{name} is {_shown(value)}: give True or False")
    return bool(value)


def known_precision(value: object) -> str | None:
    """Return the name of a precision, or None."""
    if value is not None and value not in PRECISIONS:
        raise UsageError(f"precision is {_shown(value)}: give {', '.join(PRECISIONS)}, or nothing")
    return None if value is None else str(value)


def optional_path(name: str, value: object) -> Path | None:
    """Return the path of a file that can be made, as far as its name shows, or None."""
    return None if value is None else file_path(name, value)


def file_path(name: str, value: object) -> Path:
    """Return the path of a file that can be made, as far as its name shows."""
    if not isinstance(value, str | os.PathLike) or not isinstance(given := os.fspath(value), str):
        raise UsageError(f"{name} is {_shown(value)}: give the path of a file as a text or a Path")
    if not given or "\0" in given:
        raise UsageError(f"{name} is {given!r}: give the name of a file")
    bytes_of_name = len(os.fsencode(Path(given).name))
    if bytes_of_name > MOST_NAME_BYTES:
        raise UsageError(f"the file's name has {bytes_of_name} bytes: give {name} a name of {MOST_NAME_BYTES} or fewer")
    return Path(given)


def trained(name: str, values: Sequence[object]) -> list[object]:
    """Return models or optimizers; the hook looks at their types, when the loop begins."""
    for each in values:
        if type(each).__module__.partition(".")[0] in _OF_NO_MODEL:
            raise UsageError(f"{name} holds {with_article(type(each).__name__)}: give what the framework trains with")
    return list(values)


def _whole(value: object, least: int) -> int | None:
    """Return a whole number of any integer type that lies between `least` and `MOST`, or None."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - a caller's own type may raise anything
        return None
    return number if least <= number <= MOST else None


def _shown(value: object) -> str:
    """Return a value as a short text; any other object is only named."""
    if value is None or isinstance(value, bool | float | np.number) or (isinstance(value, int) and abs(value) < 10**18):
        return str(value)
    if isinstance(value, str):
        return repr(value if len(value) < 60 else f"{value[:50]}...")
    return with_article(type(value).__name__)
