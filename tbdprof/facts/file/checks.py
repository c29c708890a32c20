"""Checks that the rows of a recording are possible: values in range, times forward, references that lead somewhere.

An analysis may then rely on it, whoever wrote the file.
"""

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tbdprof.facts.file.untrusted import MOST, DamagedError, numbers_checked
from tbdprof.facts.records import Operation, Strings
from tbdprof.facts.rows import KINDS, Table
from tbdprof.facts.values import VALUES, Range, TextOf
from tbdprof.facts.work import Work

Column = NDArray[Any]

_Sizes = list[Annotated[int, msgspec.Meta(ge=0, le=MOST)]]
_FORWARD = {"span": ("start_ns", "end_ns"), "kernel": ("start_ns", "end_ns"), "step": ("start_ns", "end_ns")}
_REFERENCES = (  # kind and column, the kind and column that it refers to
    ("allocation", "span", "span", "id"),
    ("kernel", "span", "span", "id"),
    ("step_count", "step", "step", "index"),
)


class Texts:
    """The texts of a recording, each looked at once for what it is to say."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._seen = {of: np.zeros(len(strings), bool) for of in TextOf}

    def check(self, where: str, column: Column, of: TextOf) -> None:
        """Raise DamagedError if a column refers to a text that is not there, or that does not say what it should."""
        if len(column) and (column.max() >= len(self._strings) or column.min() < -1):
            raise DamagedError(f"{where}: a text that is not there")
        used = np.zeros(len(self._strings), bool)
        used[column[column >= 0]] = True
        if of is not TextOf.NAME:
            for text in map(self._strings.__getitem__, np.flatnonzero(used & ~self._seen[of]).tolist()):
                if text:  # empty: not known
                    _check_text(where, text, of)
        self._seen[of] |= used


def check_column(kind: str, name: str, column: Column, texts: Texts) -> None:
    """Raise DamagedError if a column has an impossible value."""
    where, values = f"{kind}.{name}", VALUES[kind].get(name)
    if isinstance(values, TextOf):
        texts.check(where, column, values)
    elif isinstance(values, Range):
        least, most = column.min(initial=0), column.max(initial=0)  # NaN if there is one
        if not (least >= values.least and most <= values.most):
            raise DamagedError(f"{where}: an impossible value")
    elif values is not None and not _codes(values)[column].all():
        raise DamagedError(f"{where}: an unknown code")


def check_window(tables: Mapping[str, Table]) -> None:
    """Raise DamagedError if the rows of a window's tables cannot be together."""
    for kind, (start, end) in _FORWARD.items():
        rows = tables.get(kind)
        if rows is not None and (rows[start] > rows[end]).any():
            raise DamagedError(f"{kind}.{end}: a time before that of {start}")
    _check_order(tables)
    _check_spans(tables.get("span"))
    for kind, name, target, key in _REFERENCES:
        if kind in tables and not _are_in(tables[kind][name], _column(tables, target, key)):
            raise DamagedError(f"{kind}.{name}: a {target} that is not there")
    if "count" in tables and (tables["count"]["kernel"] >= len(tables.get("kernel", ()))).any():
        raise DamagedError("count.kernel: a kernel that is not there")


def _check_order(tables: Mapping[str, Table]) -> None:
    steps, samples = tables.get("step"), tables.get("sample")
    if steps is not None and (steps["start_ns"] == steps["end_ns"]).any():
        raise DamagedError("step.end_ns: a step that took no time")
    if steps is not None and (steps["end_ns"][:-1] > steps["start_ns"][1:]).any():
        raise DamagedError("step.start_ns: a step that begins before the last one ends")
    if samples is not None and (samples["start_ns"] > samples["time_ns"]).any():
        raise DamagedError("sample.time_ns: a time before that of start_ns")


def _check_spans(spans: Table | None) -> None:
    if spans is None:
        return
    if not (np.diff(spans["id"]) > 0).all() and len(np.unique(spans["id"])) != len(spans):
        raise DamagedError("span.id: the same one twice")
    if (spans["parent"] >= spans["id"]).any():
        raise DamagedError("span.parent: not smaller than its child's id")
    if not _are_in(spans["parent"], spans["id"]):
        raise DamagedError("span.parent: a span that is not there")


def _are_in(references: Column, keys: Column) -> bool:
    """Return whether each reference is -1 or one of the keys."""
    references = references[references >= 0]
    if not len(references):
        return True
    if len(keys) and keys[-1] - keys[0] == len(keys) - 1 and (np.diff(keys) == 1).all():
        return bool(references.min() >= keys[0] and references.max() <= keys[-1])
    return bool(np.isin(references, keys).all())


def _column(tables: Mapping[str, Table], kind: str, name: str) -> Column:
    rows = tables.get(kind)
    return np.zeros(0, KINDS[kind])[name] if rows is None else rows[name]


@cache
def _codes(values: type[IntEnum]) -> Column:
    """Return for each byte whether it is a code of an enumeration."""
    codes = np.zeros(256, bool)
    codes[[int(code) for code in values]] = True
    return codes


def _check_text(where: str, text: str, of: TextOf) -> None:
    try:
        if of is TextOf.SHAPE:
            msgspec.json.decode(text, type=_Sizes)
        elif of is TextOf.SHAPES:
            msgspec.json.decode(text, type=list[Any])
        elif of is TextOf.NAMES:
            msgspec.json.decode(text, type=list[str])
        else:
            _check_work(numbers_checked(text, 0))
    except (ValueError, RecursionError, LookupError, AttributeError, TypeError) as error:
        raise DamagedError(f"{where}: not {of.value}") from error


def _check_work(fields: dict[str, Any]) -> None:
    """Raise an error if JSON stands for no `Work`."""
    msgspec.convert({**fields, "operation": Operation[fields["operation"].upper()]}, Work)
    if unknown := fields.keys() - set(Work.__dataclass_fields__):
        raise ValueError(f"{unknown} is no part of a computation")
