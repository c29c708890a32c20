"""What the windows of all kinds and frameworks have in common, and a hook's current window."""

from collections.abc import Callable, Mapping
from typing import Protocol

from tbdprof.errors import UsageError
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained


class Window(Protocol):
    """A window; it records from its construction on. If it cannot, it raises UnavailableError and changes nothing."""

    def mark_step(self) -> None:
        """Set a step marker where a step ends."""

    def stop(self) -> None:
        """Stop recording and undo all changes, whatever is raised on the way; do nothing the second time."""

    def drain(self, strings: Strings) -> Drained:
        """Return, once, what was recorded; call it after `stop`. If `stop` raised, it returns little or nothing."""


class Windows:
    """A hook's open window, and the last ended window until it is drained."""

    def __init__(self) -> None:
        self._open: Window | None = None
        self._ended: Window | None = None

    def begin(self, name: str, kinds: Mapping[str, Callable[[], Window]]) -> None:
        """Begin the named window; raise UnavailableError if it cannot begin, UsageError if it may not."""
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
        """Return, once, what the last window recorded."""
        window, self._ended = self._ended, None
        return Drained({}, []) if window is None else window.drain(strings)
