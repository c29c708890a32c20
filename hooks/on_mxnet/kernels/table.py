"""The table of a kernels window: phases, layers and operators as spans."""

from collections.abc import Sequence

from tbdprof.facts.records import Strings
from tbdprof.facts.rows import Tables, table
from tbdprof.hooks.on_mxnet.kernels.spans import Operators
from tbdprof.hooks.on_mxnet.watch import phases
from tbdprof.hooks.on_mxnet.watch.phases import Interval


def build(operators: Operators, intervals: Sequence[Interval], strings: Strings) -> Tables:
    """Return the spans of a kernels window; this also fills `operators.missing`."""
    return {"span": table("span", [*phases.rows(intervals, strings), *operators.rows(intervals, strings)])}
