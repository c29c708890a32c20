"""The purpose of a node that ran, and the operator and function that it stands for."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tbdprof.facts.records import Operation, Phase
from tbdprof.facts.work import Work

if TYPE_CHECKING:
    from tbdprof.hooks.on_tensorflow.operators.functions import Reading


@dataclass(frozen=True, slots=True)
class Place:
    """An operator in its function, and the calls that lead to it, the outermost first."""

    reading: "Reading"
    operator: Any
    above: "tuple[tuple[Reading, Any], ...]" = ()


@dataclass(frozen=True, slots=True)
class Computing:
    """The operator that says what a node computes; for a fused operator, the matmul or convolution it begins with."""

    place: Place
    ran: str  # the type that ran
    has_bias: bool  # a bias is part of the fused operator


@dataclass(frozen=True, slots=True)
class Node:
    """The purpose of a node that ran.

    `gradients` are the parameters whose full gradients it outputs, one per output and in the order of the outputs. In a
    loop only its last execution does so. `adds_to` is the parameter for whose gradient it outputs a summand: the sum
    may be stored in the memory of one summand. `source` is the operator that it stands for, or "" if only its name was
    read. `casts` is the variable whose value it outputs in another data type. `work` and `shapes` are set if it was
    counted (`flops`), and `computing` if a graph has an operator for it.
    """

    phase: Phase
    layer: str | None
    operation: Operation
    work: Work | None = None
    shapes: list[list[int]] | None = None
    gradients: tuple[str, ...] = ()
    adds_to: str | None = None
    source: str = ""
    casts: str = ""
    computing: Computing | None = None


UNKNOWN = Node(Phase.OUTSIDE, None, Operation.OTHER)
