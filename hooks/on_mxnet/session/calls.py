"""What is noted of calls of the MXNet API."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import mxnet as mx
from mxnet.gluon import Block

from tbdprof.facts.records import Phase

NO_GRADIENT = frozenset({"BlockGrad"})


class Array(NamedTuple):
    """An argument or a result; `wanted` tells that its gradient is."""

    shape: tuple[int, ...]
    dtype: str
    wanted: bool = False


@dataclass(slots=True)
class Invocation:
    """One operator, asked for by itself."""

    operator: str
    attributes: Mapping[str, str]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...] = ()


@dataclass(slots=True)
class GraphCall:
    """A hybridized block's graph, asked for as a whole; the inputs stand in the order the symbol lists them.

    `variables` are the engine's, of the inputs.
    """

    block: Block
    symbol: mx.sym.Symbol
    inputs: tuple[Array, ...]
    variables: tuple[int, ...] = ()


class Note(NamedTuple):
    """What was known when something was asked of the engine; no phase: on a thread that is not Python's."""

    phase: Phase | None
    block: Block | None  # innermost
    asked: Invocation | GraphCall | None
