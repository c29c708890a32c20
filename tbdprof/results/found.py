"""A result together with the reasons for what it lacks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Found(Generic[T_co]):
    """What an analysis returns: its result, and the reason for each None.

    The keys of `missing` are paths within the result, in the report's names; "" is the whole result. `remarks` are what
    else a reader must know, by subject: they are the reason for no None.
    """

    value: T_co
    missing: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str | None:
        """Return why the whole result is missing, or None if it is not."""
        return self.missing.get("")

    def under(self, place: str) -> dict[str, str]:
        """Return the reasons by their paths in a report that has the result at `place`; "" is the report itself."""
        return {".".join(part for part in (place, path) if part): reason for path, reason in self.missing.items()}


def because(reason: str, remarks: Mapping[str, str] | None = None) -> Found[None]:
    """Return no result, for this reason."""
    return Found(None, {"": reason}, remarks or {})


def reasons(parts: Mapping[str, tuple[object, str]]) -> dict[str, str]:
    """Return the reasons of the parts that are None; a part is its value and the reason if it is None."""
    return {path: reason for path, (value, reason) in parts.items() if value is None}
