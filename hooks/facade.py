"""What every hook does alike: its state between joining and close, its windows, the device it reports on."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tbdprof.errors import UsageError
from tbdprof.facts.records import Peaks, Strings
from tbdprof.hooks import Drained
from tbdprof.hooks.environment import Environment
from tbdprof.hooks.windows import Windows


@dataclass(slots=True, kw_only=True)
class Joined:
    """What a hook holds of the process from `prepare` or `attach` until `close`."""

    watch: Any
    device: str | None = None  # None: where the watched parameters are
    last_device: str = "cpu"  # where they were when last looked for, at first where they are expected


State = TypeVar("State", bound=Joined)


class Facade(ABC, Generic[State]):
    """The half of a `FrameworkHook` that no framework does in its own way."""

    _title: str  # of the framework, in messages

    def __init__(self) -> None:
        self._environment = Environment()
        self._joined: State | None = None
        self._windows = Windows()

    def on_update(self, callback: Callable[[object], None]) -> None:
        """Call back with the optimizer after each step any optimizer takes, until `close`."""
        self._require().watch.on_update(callback)

    def peaks(self, precisions: Sequence[str]) -> Peaks:
        """Return the device's peaks: looked up for CUDA, measured on the CPU."""
        self._require()
        from tbdprof.hooks import probing

        return probing.peaks(self._device(), precisions, self._measure())

    def mark_step(self) -> None:
        """Mark a step's end; in a memory window read all owners there."""
        self._windows.mark_step()

    def stop(self) -> None:
        """End the window, and put back what it changed in the framework."""
        self._windows.stop()

    def drain(self, strings: Strings) -> Drained:
        """Return the last window's spans; of a memory window allocations and owners, too."""
        return self._windows.drain(strings)

    def close(self) -> None:
        """Put everything back as it was before `prepare` or `attach`, whatever is raised on the way."""
        with ExitStack() as after:
            after.callback(self._environment.put_back)
            after.callback(self._leave)
            self._windows.stop()

    @abstractmethod
    def _put_back(self, joined: State) -> None:
        """Put back what joining changed in the framework."""

    @abstractmethod
    def _device_of_parameters(self, joined: State) -> str | None:
        """Return where the watched parameters are, None where there are none."""

    @abstractmethod
    def _measure(self) -> Any:
        """Return what measures the peaks of a CPU: the framework's `probe.measure`."""

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
