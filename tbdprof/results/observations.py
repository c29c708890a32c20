"""The TBD paper's observations, and whether recordings bear them out."""

from dataclasses import dataclass
from enum import Enum


class Answer(str, Enum):
    """Whether recordings bear an observation out."""

    YES = "yes"
    NO = "no"
    UNCLEAR = "cannot tell"


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation by its number in arXiv:1803.06905, the answer, and the figures it rests on or the reason."""

    number: int
    says: str
    answer: Answer
    figures: tuple[str, ...]
    reason: str | None = None  # why there is no answer
