"""What is noted of a graph while it is created."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Interval:
    """The operators of a graph between two positions, and what they have in common."""

    first: int
    last: int
    value: Any
    replica: int = 0  # of a strategy: while one waits within an interval, operators of others are created


@dataclass(slots=True)
class Notes:
    """What was noted while a graph was created."""

    phases: list[Interval] = field(default_factory=list)  # values of Phase
    layers: list[Interval] = field(default_factory=list)  # values: weak references to layers
    gradients: list[Interval] = field(default_factory=list)  # values: the operator whose gradient it is
    results: list[tuple[Any, str]] = field(default_factory=list)  # variables' gradients, with the variables' names
