"""Results about the ranks of one run together: the processes that train one model, each with a recording of its own."""

from dataclasses import dataclass

LEAST_DIFFERENCE = 0.1  # of a step; less varies from step to step


@dataclass(frozen=True, slots=True)
class RankFigures:
    """A rank's figures, per step. None: not measured, and the rank's own report has the reason.

    `own_seconds` and `exposed_seconds` add up to a step of its kernels windows.
    """

    rank: int | None  # None: the recording names none
    device: str
    clean_step_seconds: float | None  # in the clean windows
    own_seconds: float | None  # in which the rank does not wait for communication alone
    exposed_seconds: float | None  # in which communication runs and nothing else
    hidden_seconds: float | None  # in which communication runs beside something else
    sent_bytes: int | None
    peak_bytes: int | None  # of memory
    ended_by: str  # why its recording is not complete, empty where it is


@dataclass(frozen=True, slots=True)
class Wait:
    """How much longer than the slowest rank another one waits for communication."""

    place: int  # in `Ranks.ranks`
    seconds: float  # per step


@dataclass(frozen=True, slots=True)
class Ranks:
    """What ranks have in common, and in what they differ. `missing` has the reason for no slowest rank."""

    ranks: tuple[RankFigures, ...]
    world_size: int | None  # None: these are no ranks of one run
    absent: tuple[int, ...]  # ranks of the run that are not among these, 100 at most
    slowest: int | None  # place in `ranks` of the one with the most time of its own
    lead_seconds: float | None  # per step, by which own times differ at most
    waits: tuple[Wait, ...]  # for the slowest, the longest first
    missing: dict[str, str]
