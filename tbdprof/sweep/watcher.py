"""What is notified as a sweep goes on."""

from typing import Protocol

from tbdprof.sweep.outcome import Outcome
from tbdprof.sweep.plan import Point


class Watcher(Protocol):
    """Is told of the points as they begin and end."""

    def begins(self, point: Point, ended: int, total: int | None, at_once: int = 1) -> None:
        """Take note that a point begins, and how many run at once; `total` is None while it is not known."""

    def lost(self, point: Point) -> None:
        """Take note that a point's machine was lost, and that it runs again."""

    def ends(self, point: Point, outcome: Outcome) -> None:
        """Take note that a point ended."""
