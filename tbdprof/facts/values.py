"""What the values of a column may be, where that has limits: a number, a code of an enumeration, or a text."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from math import inf

from tbdprof.facts.consumed import StepCountKind
from tbdprof.facts.records import AllocationKind, KernelKind, Operation, Phase, Role, SpanKind


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the largest value of a column."""

    least: float
    most: float = inf


class TextOf(Enum):
    """What a text says, whose index in `Strings` a column has; -1 stands for no text."""

    NAME = "a name"
    SHAPE = "a JSON list of sizes"
    SHAPES = "a JSON list"
    NAMES = "a JSON list of names"
    WORK = "a computation"  # `tbdprof.facts.work.text`


Values = Range | TextOf | type[IntEnum]

_FROM_0 = Range(0)
_OR_NONE = Range(-1)
_AMOUNT = Range(0, 1e15)
_ANY = Range(-1e18, 1e18)
_TIME = Range(-4e18, 4e18)  # ns; the time between any two of them is still a 64-bit number
_TIME_OR_NONE = Range(-1, _TIME.most)
_TIMES = {"start_ns": _TIME, "end_ns": _TIME}

VALUES: Mapping[str, Mapping[str, Values]] = {  # by kind and column of `tbdprof.facts.rows`
    "span": {
        "id": _FROM_0,
        "parent": _OR_NONE,
        "kind": SpanKind,
        "phase": Phase,
        "operation": Operation,
        "name": TextOf.NAME,
        "shapes": TextOf.SHAPES,
        "work": TextOf.WORK,
        **_TIMES,
    },
    "kernel": {
        "name": TextOf.NAME,
        "kind": KernelKind,
        "device": TextOf.NAME,
        "span": _OR_NONE,
        "grid": TextOf.SHAPE,
        "block": TextOf.SHAPE,
        "registers": _OR_NONE,
        "shared_bytes": _OR_NONE,
        "moved_bytes": _OR_NONE,
        "graph": _OR_NONE,
        "launch_ns": _TIME,
        **_TIMES,
    },
    "allocation": {
        "kind": AllocationKind,
        "device": TextOf.NAME,
        "requested_bytes": _OR_NONE,
        "allocated_bytes": _OR_NONE,
        "span": _OR_NONE,
        "was_tensor": _OR_NONE,
        "shape": TextOf.SHAPE,
        "total_bytes": _OR_NONE,
        "time_ns": _TIME,
    },
    "owner": {
        "device": TextOf.NAME,
        "bytes": _FROM_0,
        "role": Role,
        "name": TextOf.NAME,
        "shape": TextOf.SHAPE,
    },
    "step": {"index": _FROM_0, "block": _FROM_0, "units": _AMOUNT, **_TIMES},
    "step_count": {"step": _FROM_0, "kind": StepCountKind, "name": TextOf.NAME, "value": _AMOUNT},
    "sample": {
        "counter": TextOf.NAME,
        "device": TextOf.NAME,
        "value": _ANY,
        "time_ns": _TIME,
        "start_ns": _TIME_OR_NONE,
    },
    "count": {"kernel": _FROM_0, "counter": TextOf.NAME, "value": _ANY},
    "fused": {"kernel": TextOf.NAME, "operators": TextOf.NAMES, "nodes": TextOf.NAMES},
}
