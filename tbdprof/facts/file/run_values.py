"""Reads what is true of the whole run from the JSON of a recording, as the types of `Run` have it."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, get_type_hints

import msgspec

from tbdprof.facts.file.untrusted import MOST, DamagedError, numbers_checked
from tbdprof.facts.recording import KILLED, STILL_RUNNING
from tbdprof.facts.records import Run

MOST_DIMENSIONS = 1000  # of a parameter; those of frameworks have at most 254
_MAY_BE_NEGATIVE = ("options", "optimizers")


def run_from(values: Mapping[str, str]) -> Run:
    """Return the run that JSON describes, by field; fields that this version does not know are passed over.

    Raise DamagedError if a field lacks, has another type, or a number that cannot be.
    """
    known = {item.name: _value(item.name, values[item.name]) for item in fields(Run) if item.name in values}
    for item in fields(Run):
        if item.name not in known and item.default is MISSING and item.default_factory is MISSING:
            raise DamagedError(f"run: {item.name} is missing")
    if known.get("ended_by") == STILL_RUNNING:
        known["ended_by"] = KILLED
    run = Run(**known)
    if any(len(item.shape) > MOST_DIMENSIONS for item in run.parameters):  # their product would take hours
        raise DamagedError("run.parameters: a shape of more dimensions than any tensor has")
    if sum(item.item_bytes * math.prod(item.shape) for item in run.parameters) > MOST:
        raise DamagedError("run.parameters: more bytes than any memory has")
    return run


def _value(name: str, written: str) -> Any:
    try:
        return msgspec.convert(numbers_checked(written, 0 if name not in _MAY_BE_NEGATIVE else None), _types()[name])
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        raise DamagedError(f"run.{name}: {error}") from error


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(Run)
