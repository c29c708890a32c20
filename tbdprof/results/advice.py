"""Results of trying switches: what each brought beside the plain run, and how the verdict's advice fared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tbdprof.results.compare import Comparison, Pair

Settings = Mapping[str, str | int]


class Result(str, Enum):
    """What a trial brought in throughput; those of a higher rank come first."""

    FASTER = "faster"
    NO_DIFFERENCE = "no difference"
    CANNOT_TELL = "cannot tell"
    SLOWER = "slower"
    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting to try, and the verdict's advice that it carries out; none: the verdict does not point at it."""

    settings: Settings
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Losses:
    """The loss before the first training step and after each of the next ones, each of the batch of its step."""

    values: tuple[float, ...] = ()
    reason: str | None = None  # why there are none

    @property
    def last(self) -> float | None:
        """Return the loss after the last step, None if there are none."""
        return self.values[-1] if self.values else None

    @property
    def steps(self) -> int:
        """Return the number of steps before the last loss."""
        return max(len(self.values) - 1, 0)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a choice brought; without a recording, `reason` says why, and there is no pair."""

    name: str  # "compile", "hybridize static", "precision bf16"
    choice: Choice
    result: Result
    reason: str = ""
    pair: Pair | None = None  # with the plain run as its baseline
    losses: Losses = field(default_factory=Losses)
    seconds: float | None = None  # from the start of its process to its end


@dataclass(frozen=True, slots=True)
class JudgedAdvice:
    """A line of the verdict's advice, and the trials that carried it out, the best first."""

    text: str
    trials: tuple[Trial, ...]

    @property
    def result(self) -> Result | None:
        """Return what the best trial brought; None: no switch of the model carries out this advice."""
        return self.trials[0].result if self.trials else None


@dataclass(frozen=True, slots=True)
class Plain:
    """The run without switches."""

    facts: Mapping[str, str]
    rate_per_s: float | None
    rate_interval: tuple[float, float] | None
    unit: str  # of the rate, in the plural
    peak_bytes: int | None
    losses: Losses
    verdict: str | None  # its sentence
    no_verdict: str  # why there is none


@dataclass(frozen=True, slots=True)
class Advised:
    """All trials, ranked by what they brought, and how the verdict's advice fared."""

    plain: Plain
    trials: tuple[Trial, ...]
    advice: tuple[JudgedAdvice, ...]
    again: Trial | None  # the plain run once more: what it differs by is no gain
    comparison: Comparison | None  # of all that have a recording, the plain run first; None: only that one has
