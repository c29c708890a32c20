"""Functions of a framework's Python side that are replaced for a while and restored exactly."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

_ABSENT = object()
Replaced = Callable[..., Any]


class Patches:
    """Groups of replaced attributes; a group stays in place as long as there is a reason for it."""

    def __init__(self, groups: Mapping[str, Sequence[tuple[object, str, Callable[[Replaced], Replaced]]]]) -> None:
        """Take groups by name; each entry holds an owner, an attribute name and a function that wraps the original."""
        self._groups = groups
        self._needed: dict[str, set[str]] = {group: set() for group in groups}
        self._originals: dict[str, list[tuple[object, str, object]]] = {}

    def need(self, group: str, reason: str) -> None:
        """Put a group in place, and keep it there until `release` is called with this reason."""
        if not self._needed[group]:
            self._originals[group] = [_replace(*patch) for patch in self._groups[group]]
        self._needed[group].add(reason)

    def release(self, reason: str) -> None:
        """Restore every group that was needed for this reason alone."""
        for group, reasons in self._needed.items():
            reasons.discard(reason)
            if not reasons:
                for owner, name, original in reversed(self._originals.pop(group, [])):
                    _put_back(owner, name, original)


class Wrap:
    """A function that is wrapped for a while, again and again; a wrapper that other code wrapped in turn stays."""

    def __init__(self, owner: Any, name: str, make: Callable[[Replaced], Replaced]) -> None:
        self._owner, self._name, self._make = owner, name, make
        self._was_own = False
        self._original: Replaced | None = None
        self._wrapped: Replaced | None = None  # None if it is not wrapped

    def put(self) -> None:
        """Wrap it; do nothing if it is wrapped."""
        if self._wrapped is None:
            self._was_own, self._original = self._name in vars(self._owner), getattr(self._owner, self._name)
            self._wrapped = wraps(self._original)(self._make(self._original))
            setattr(self._owner, self._name, self._wrapped)

    def take(self) -> None:
        """Put the original back, unless other code wrapped it again meanwhile: that may still call ours."""
        if self._wrapped is None or vars(self._owner).get(self._name) is not self._wrapped:
            return
        self._wrapped = None
        if self._was_own:
            setattr(self._owner, self._name, self._original)
        else:
            delattr(self._owner, self._name)


def _replace(owner: Any, name: str, make: Callable[[Replaced], Replaced]) -> tuple[object, str, object]:
    original = getattr(owner, name)
    kept = vars(owner).get(name, _ABSENT)
    setattr(owner, name, make(original))
    return owner, name, kept


def _put_back(owner: object, name: str, original: object) -> None:
    if original is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, original)
