"""The records of calls of MXNet's API."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import mxnet as mx
from mxnet.executor import Executor
from mxnet.gluon import Block

from tbdprof.facts.records import Phase

NO_GRADIENT = frozenset({"BlockGrad"})


@dataclass(eq=False, slots=True)
class Stored:
    """How many values a sparse array stores; None until the engine has reached it, or if it is not known."""

    values: int | None = None


class Array(NamedTuple):
    """An argument or a result; `wanted` says whether its gradient is needed, and `stored` is that of a sparse one."""

    shape: tuple[int, ...]
    dtype: str
    wanted: bool = False
    stored: Stored | None = None


@dataclass(slots=True)
class Invocation:
    """A call of one operator."""

    operator: str
    attributes: Mapping[str, str]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...] = ()


@dataclass(slots=True)
class GraphCall:
    """A call of the whole graph of a hybridized block or an executor; the inputs are in the order of the symbol's list.

    `variables` are the engine's variables of the inputs.
    """

    block: Block | Executor
    symbol: mx.sym.Symbol
    inputs: tuple[Array, ...]
    variables: tuple[int, ...] = ()


class NodeRun(NamedTuple):
    """A node of an executor's graph that was requested; nodes are numbered as the executor prints them."""

    executor: int  # its handle
    node: int


class Note(NamedTuple):
    """What was known at a request to the engine; `phase` is None on a thread that Python did not start."""

    phase: Phase | None
    block: Block | None  # innermost
    asked: Invocation | GraphCall | NodeRun | None
