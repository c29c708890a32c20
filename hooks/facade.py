"""What all hooks have in common: their state from joining to `close`, their windows, and the device they report on."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from tbdprof.errors import UsageError
from tbdprof.facts.records import Peaks, Strings
from tbdprof.hooks import Drained
from tbdprof.hooks.environment import Environment
from tbdprof.hooks.waiting import forget_waiting, raise_waiting
from tbdprof.hooks.windows import Windows


@dataclass(slots=True, kw_only=True)
class Joined:
    """What a hook keeps about the process from `prepare` or `attach` until `close`."""

    watch: Any
    device: str | None = None  # None: where the watched parameters are
    last_device: str = "cpu"  # where they were when last looked for, at first where they are expected


State = TypeVar("State", bound=Joined)


class Facade(ABC, Generic[State]):
    """The half of a `FrameworkHook` that is the same for every framework."""

    _title: str  # of the framework, in messages

    def __init__(self) -> None:
        self._environment = Environment()
        self._joined: State | None = None
        self._windows = Windows()

    def on_update(self, callback: Callable[[object], None]) -> None:
        """Call `callback` with the optimizer after each step of any optimizer, until `close`."""
        self._require().watch.on_update(callback)

    def peaks(self, precisions: Sequence[str]) -> Peaks:
        """Return the device's peaks: looked up for CUDA, measured on the CPU."""
        self._require()
        from tbdprof.hooks import probing

        return probing.peaks(self._device(), precisions, self._measure())

    def mark_step(self) -> None:
        """Mark the end of a step; in a memory window, read all owners there. Raise what a callback met meanwhile."""
        raise_waiting()
        self._windows.mark_step()
        if self._joined is not None:
            self._joined.watch.batches.step_ended()

    def stop(self) -> None:
        """End the window, and undo what it changed in the framework. Raise what a callback met meanwhile."""
        self._windows.stop()
        raise_waiting()

    def drain(self, strings: Strings) -> Drained:
        """Return what the last window recorded: its spans; of a memory window, also allocations and owners."""
        drained = self._windows.drain(strings)
        if self._joined is None:
            return drained
        batches = self._joined.watch.batches
        source, unknown = batches.source, batches.unknown
        return replace(drained, given=batches.take(), given_from=source, given_unknown=unknown)

    def close(self) -> None:
        """Restore everything to its state before `prepare` or `attach`, whatever is raised on the way."""
        with ExitStack() as after:
            after.callback(forget_waiting)
            after.callback(self._environment.put_back)
            after.callback(self._leave)
            self._windows.stop()

    @abstractmethod
    def _put_back(self, joined: State) -> None:
        """Undo what joining changed in the framework."""

    @abstractmethod
    def _device_of_parameters(self, joined: State) -> str | None:
        """Return the device of the watched parameters, or None if there are none."""

    @abstractmethod
    def _measure(self) -> Any:
        """Return the function that measures the peaks of a CPU: the framework's `probe.measure`."""

    def _leave(self) -> None:
        joined, self._joined = self._joined, None
        if joined is not None:
            self._put_back(joined)

    def _require(self) -> State:
        if self._joined is None:
            raise UsageError(f"the {self._title} hook is used before prepare() or attach(), or after close()")
        return self._joined

    def _device(self) -> str:
        joined = self._require()
        if joined.device is not None:
            return joined.device
        # Kept, for the parameters may be gone where the loop has ended.
        joined.last_device = self._device_of_parameters(joined) or joined.last_device
        return joined.last_device
