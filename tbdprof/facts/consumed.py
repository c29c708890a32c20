"""What one training step consumed: units of work, padding, and lengths of sequences."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

STEPS = "steps"  # the unit of a loop that gives no count


class StepCountKind(IntEnum):
    """What is counted of a step beside the run's own unit."""

    UNITS = 0  # of another unit than the run's own
    PADDING = 1  # positions that fill sequences up, in the unit of that name; computed, but no units of work
    LENGTH = 2  # of the longest sequence, padding included


@dataclass(frozen=True, slots=True)
class Consumed:
    """What one step consumed. Units are named in the plural: sentences, tokens, seconds of audio.

    Padding is computed but is not a unit of work: it is counted apart from the units of the same name.
    """

    units: float  # of the run's own unit
    also: Mapping[str, float] = field(default_factory=dict)  # of other units, by name
    padding: Mapping[str, float] = field(default_factory=dict)  # positions filled up, by the unit they would have been
    lengths: Mapping[str, float] = field(default_factory=dict)  # of the longest sequence, by what it is: source, target

    def counts(self) -> Iterator[tuple[StepCountKind, str, float]]:
        """Yield the kind, name and value of each count beside the run's own units."""
        for kind, values in (
            (StepCountKind.UNITS, self.also),
            (StepCountKind.PADDING, self.padding),
            (StepCountKind.LENGTH, self.lengths),
        ):
            for name, value in values.items():
                yield kind, name, value
