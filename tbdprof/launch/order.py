"""How a process is ordered to be recorded: by an environment variable, with what the user says of its script."""

from dataclasses import dataclass

from tbdprof.facts.batches import SAMPLES, TOKENS

VARIABLE = "TBDPROF_ATTACH"
IMPORTED = "imported-{}"  # a file beside the token: a process imported this framework
RANK = "rank"  # files beside the token are named after the ranks that are recorded: rank0, rank1


@dataclass(frozen=True, slots=True)
class Said:
    """What the user says of a script; None: it is seen."""

    samples_per_step: int | None = None
    unit: str | None = None
    precision: str | None = None

    @property
    def facts(self) -> dict[str, str | None]:
        """Return the facts of the run; a sample has the name that the user gives, unless tokens are counted."""
        unit = self.unit or SAMPLES
        return {"precision": self.precision, "unit": unit, "sample_unit": SAMPLES if unit == TOKENS else unit}
