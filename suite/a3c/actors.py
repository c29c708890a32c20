"""Actors that train in parallel, each in its own thread, and a loop that takes their updates one at a time.

An actor begins its next update when the loop, having taken the actor's last update, asks for another one. So an actor
is at most one finished update ahead of the loop.

A pause is removed from the actors' time. If an update ends t seconds after a pause began, the loop can take it t
seconds after the pause is over. That is when it would have ended without a pause; its actor rests until then. So the
actors keep their distances in time, each update is taken once, and steps after a pause last as long as steps before it.
The work that was done on those updates during the pause is missing from the steps after it: on average half an update
for each actor but one. With two actors all of it is missing from the first step.

A single actor trains in the calling thread, so that everything happens in one order, the same in every run.
"""

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tbdprof.errors import UsageError

Update = Callable[[], float]  # makes one update and returns the number of environment steps it took

_ENDED = "the actors have ended: build the model anew"


class Actors:
    """Runs one thread for each update function, from the first step until it is closed or garbage-collected."""

    def __init__(self, updates: Sequence[Update]) -> None:
        self._updates = updates
        self._gate = Gate()
        self._threads: list[threading.Thread] = []
        # The threads hold no reference to this object, so they end when it is garbage-collected.
        weakref.finalize(self, self._gate.end).atexit = False
        _alive.add(self)

    def step(self) -> float:
        """Wait for the next update that any actor finishes; return its environment steps.

        An exception of an actor is raised here. Raises UsageError if the actors have ended.
        """
        if len(self._updates) == 1:
            if self._gate.ended:
                raise UsageError(_ENDED)
            return self._updates[0]()
        if not self._threads:
            self._start()
        return self._gate.take()

    def pause(self) -> None:
        """Let each actor finish its current update; return when no actor computes."""
        self._gate.pause()

    def close(self) -> None:
        """End the threads, each after its current update."""
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
    """An update that has finished and has not been taken."""

    units: float
    due: float  # the time from which it may be taken; during a pause, the delay after the pause


class Gate:
    """Synchronizes the loop and the actors."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.ended = False
        self._clock = clock
        self._changed = threading.Condition()
        self._open = False
        self._paused = 0.0  # when the last pause began
        self._computing = 0
        self._finished: dict[int, _Finished] = {}  # by actor
        self._resting: int | None = None  # actor of the last taken update, until the loop asks for another
        self._error: BaseException | None = None

    def take(self) -> float:
        """Resume the actors and return the units of the next finished update; raises what an actor raised."""
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
        """Let no actor begin an update, and wait for updates in progress."""
        with self._changed:
            if self._open:
                self._open, self._paused = False, self._clock()
                for each in self._finished.values():
                    each.due = max(0.0, each.due - self._paused)
            self._changed.wait_for(lambda: not self._computing)

    def end(self) -> None:
        """Let no actor begin another update, for good."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def enter(self, number: int) -> bool:
        """Wait until an actor may begin an update; return false if its thread must end."""
        with self._changed:
            self._changed.wait_for(lambda: self.ended or self._may_begin(number))
            self._computing += not self.ended
            return not self.ended

    def leave(self, number: int, units: float | None, error: BaseException | None = None) -> None:
        """Report the end of an actor's update: the units it consumed, or an error, which ends all actors."""
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
    """Make updates until the gate ends."""
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
    """End all threads before the interpreter exits: framework code must not run in a thread at that time."""
    for actors in list(_alive):
        actors.close()
