"""What a node that ran is for, and which operator of which function it stands for."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tbdprof.facts.records import Operation, Phase
from tbdprof.facts.work import Work

if TYPE_CHECKING:
    from tbdprof.hooks.on_tensorflow.operators.functions import Reading


@dataclass(frozen=True, slots=True)
class Place:
    """An operator in the function it stands in, and the calls that lead to it, the outermost first."""

    reading: "Reading"
    operator: Any
    above: "tuple[tuple[Reading, Any], ...]" = ()


@dataclass(frozen=True, slots=True)
class Computing:
    """The operator that tells what a node computes: of several made one the product they begin with."""

    place: Place
    ran: str  # the type that ran
    has_bias: bool  # one is among what was made one


@dataclass(frozen=True, slots=True)
class Node:
    """What a node that ran is for.

    `gradients` are the parameters whose full gradient it puts out, one of each output, in the outputs' order; in a loop
    the last of its executions does. `adds_to` is the parameter whose gradient it puts out a summand of: the sum may be
    made in the memory of one of these. `source` is the operator it stands for, "" where only its name was read.
    `work` and `shapes` are told where it was counted (`flops`), and `computing` where a graph has an operator for it.
    """

    phase: Phase
    layer: str | None
    operation: Operation
    work: Work | None = None
    shapes: list[list[int]] | None = None
    gradients: tuple[str, ...] = ()
    adds_to: str | None = None
    source: str = ""
    computing: Computing | None = None


UNKNOWN = Node(Phase.OUTSIDE, None, Operation.OTHER)
