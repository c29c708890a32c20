"""What the windows of every kind and framework have in common, and which of them a hook has at hand."""

from collections.abc import Callable, Mapping
from typing import Protocol

from tbdprof.errors import UsageError
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained


class Window(Protocol):
    """Records from its making on, which raises UnavailableError, and leaves nothing behind, where it cannot."""

    def mark_step(self) -> None:
        """Mark the place in the order where a step ends."""

    def stop(self) -> None:
        """Record no more and put everything back, whatever is raised on the way; does nothing the second time."""

    def drain(self, strings: Strings) -> Drained:
        """Return what was recorded, once, after `stop`; little or nothing where that raised."""


class Windows:
    """The open window of a hook, and the one that ended last until it is drained."""

    def __init__(self) -> None:
        self._open: Window | None = None
        self._ended: Window | None = None

    def begin(self, name: str, kinds: Mapping[str, Callable[[], Window]]) -> None:
        """Begin the window of a name; raises UnavailableError where it cannot, UsageError where it may not."""
        if name not in kinds:
            raise UsageError(f"unknown window {name!r}: choose {' or '.join(kinds)}")
        if self._open is not None:
            raise UsageError(f"a window is open already: stop it before the {name} window begins")
        self._open = kinds[name]()

    def mark_step(self) -> None:
        """Mark the end of a step in the open window, if there is one."""
        if self._open is not None:
            self._open.mark_step()

    def stop(self) -> None:
        """End the open window, if there is one."""
        window, self._open = self._open, None
        if window is not None:
            self._ended = window
            window.stop()

    def drain(self, strings: Strings) -> Drained:
        """Return what the last window recorded, once."""
        window, self._ended = self._ended, None
        return Drained({}, []) if window is None else window.drain(strings)
