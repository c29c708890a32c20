"""Actors that train side by side, each in a thread of its own, and how a loop takes their updates one at a time.

An actor begins its next update when the loop asks for another one after taking its last: it is at most one finished
update ahead of the loop. A pause is cut out of the actors' time: an update that ends so many seconds after a pause
began is taken so many seconds after it is over, when it would have ended without one, and its actor rests until then.
So actors stay as far apart as they were, each update is taken once, and the steps that follow a pause last as long as
those before it. What was done of those updates in the pause is missing from the steps after it: each actor but one
lacks half an update on average, with two actors within the first step.

A single actor trains in the thread that asks: so that there is one order of all that happens, the same in every run.
"""

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tbdprof.errors import UsageError

Update = Callable[[], float]  # makes one update, and returns the environment steps it took

_ENDED = "the actors have ended: build the model anew"


class Actors:
    """Makes updates in as many threads as there are, from the first step on, until it is closed or let go."""

    def __init__(self, updates: Sequence[Update]) -> None:
        self._updates = updates
        self._gate = Gate()
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
            arguments = (self._gate, number, update)
            thread = threading.Thread(target=_act, args=arguments, name=f"actor{number}", daemon=True)
            self._threads.append(thread)
            thread.start()


@dataclass(slots=True)
class _Finished:
    """An update that is not taken yet."""

    units: float
    due: float  # when it may be taken, by the clock; while all are paused: how long after that


class Gate:
    """Where the loop and the actors meet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.ended = False
        self._clock = clock
        self._changed = threading.Condition()
        self._open = False
        self._paused = 0.0  # when the last pause began
        self._computing = 0
        self._finished: dict[int, _Finished] = {}  # by actor
        self._resting: int | None = None  # the actor whose update was taken last, until another one is asked for
        self._error: BaseException | None = None

    def take(self) -> float:
        """Let actors go on, and return what the next one has done; raises what an actor raised."""
        with self._changed:
            self._go_on()
            while True:
                if self._error is not None:
                    raise self._error
                if self.ended:
                    raise UsageError(_ENDED)
                first = min(self._finished, key=lambda number: self._finished[number].due, default=None)
                left = None if first is None else self._finished[first].due - self._clock()
                if first is not None and left is not None and left <= 0:
                    self._resting = first
                    return self._finished.pop(first).units
                self._changed.wait(left)

    def pause(self) -> None:
        """Let no actor begin, and wait for those that are in an update."""
        with self._changed:
            if self._open:
                self._open, self._paused = False, self._clock()
                for each in self._finished.values():
                    each.due = max(0.0, each.due - self._paused)
            self._changed.wait_for(lambda: not self._computing)

    def end(self) -> None:
        """Let no actor begin again."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def enter(self, number: int) -> bool:
        """Wait until an actor may begin an update; return false where it is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self.ended or self._may_begin(number))
            self._computing += not self.ended
            return not self.ended

    def leave(self, number: int, units: float | None, error: BaseException | None = None) -> None:
        """Say that an actor's update ended, with what it consumed or by an error, which ends all."""
        with self._changed:
            self._computing -= 1
            if units is not None:
                now = self._clock()
                self._finished[number] = _Finished(units, now if self._open else now - self._paused)
            elif self._error is None:
                self._error, self.ended = error, True
            self._changed.notify_all()

    def _may_begin(self, number: int) -> bool:
        return self._open and number not in self._finished and number != self._resting

    def _go_on(self) -> None:
        if not self._open:
            self._open = True
            for each in self._finished.values():
                each.due += self._clock()
        self._resting = None
        self._changed.notify_all()


def _act(gate: Gate, number: int, update: Update) -> None:
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
