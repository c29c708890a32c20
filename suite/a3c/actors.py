"""Actors that train side by side, each in a thread of its own, and how a loop takes their updates one at a time.

An actor begins no update while one that it finished is not taken: it is at most one ahead of the loop. Updates that
end while all are paused, or that were not taken before, are handed to no step: else the first steps after a pause
would end at once, and their window would show work that was done before it. A single actor trains in the thread that
asks, so that there is an order of all that happens, and it is the same in every run.
"""

import atexit
import threading
import weakref
from collections.abc import Callable, Sequence

from tbdprof.errors import UsageError

Update = Callable[[], float]  # makes one update, and returns the environment steps it took

_ENDED = "the actors have ended: build the model anew"


class Actors:
    """Makes updates in as many threads as there are, from the first step on, until it is closed or let go."""

    def __init__(self, updates: Sequence[Update]) -> None:
        self._updates = updates
        self._gate = _Gate()
        self._threads: list[threading.Thread] = []
        # The threads do not hold this object: where it is let go, they end.
        weakref.finalize(self, self._gate.end).atexit = False
        _alive.add(self)

    def step(self) -> float:
        """Wait for the next update that any actor finishes; return its environment steps.

        What an actor raises is raised here. Raises UsageError where the actors have ended.
        """
        if len(self._updates) == 1:
            if self._gate.ended:
                raise UsageError(_ENDED)
            return self._updates[0]()
        if not self._threads:
            self._start()
        return self._gate.take()

    def pause(self) -> None:
        """Let each actor end the update it is in; return when none computes."""
        self._gate.pause()

    def close(self) -> None:
        """End the threads, each after the update it is in."""
        self._gate.end()
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        for number, update in enumerate(self._updates):
            thread = threading.Thread(
                target=_act, args=(self._gate, number, update), name=f"actor{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()


class _Gate:
    """Where the loop and the actors meet."""

    def __init__(self) -> None:
        self.ended = False
        self._changed = threading.Condition()
        self._open = False
        self._computing = 0
        self._finished: dict[int, float] = {}  # by actor, in the order in which they ended
        self._error: BaseException | None = None

    def take(self) -> float:
        """Let actors go on, and return what the next one has done; raises what an actor raised."""
        with self._changed:
            self._open = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._finished or self.ended)
            if self._error is not None:
                raise self._error
            if self.ended:
                raise UsageError(_ENDED)
            units = self._finished.pop(next(iter(self._finished)))
            self._changed.notify_all()
            return units

    def pause(self) -> None:
        """Let no actor begin, wait for those that are in an update, and forget what was not taken."""
        with self._changed:
            self._open = False
            self._changed.wait_for(lambda: not self._computing)
            self._finished.clear()

    def end(self) -> None:
        """Let no actor begin again."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def enter(self, number: int) -> bool:
        """Wait until an actor may begin an update; return false where it is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self.ended or (self._open and number not in self._finished))
            self._computing += not self.ended
            return not self.ended

    def leave(self, number: int, units: float | None, error: BaseException | None) -> None:
        """Say that an actor's update ended, with what it consumed or by an error, which ends all."""
        with self._changed:
            self._computing -= 1
            if units is not None:
                self._finished[number] = units
            if error is not None and self._error is None:
                self._error, self.ended = error, True
            self._changed.notify_all()


def _act(gate: _Gate, number: int, update: Update) -> None:
    """Make updates until the gate ends it."""
    while gate.enter(number):
        units: float | None = None
        error: BaseException | None = None
        try:
            units = update()
        except BaseException as raised:  # noqa: BLE001 (it is raised again, in the loop's thread)
            error = raised
        gate.leave(number, units, error)


_alive: weakref.WeakSet[Actors] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End all threads before the interpreter does: a framework's own code must not run in one then."""
    for actors in list(_alive):
        actors.close()
