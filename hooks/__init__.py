"""The interface between tbdprof and the frameworks: a hook reports facts and classifies nothing.

Each hook is a package named `on_<framework>`. It alone imports that framework. `load` imports the hook, while `about`
reads only the facts that need no framework.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from tbdprof.errors import UsageError
from tbdprof.hooks.about import About

if TYPE_CHECKING:  # imports numpy, which `about` does not need
    from tbdprof.facts.records import Optimizer, Parameter, Peaks, Strings
    from tbdprof.facts.rows import Tables

FRAMEWORKS: tuple[str, ...] = ("torch", "mxnet", "tensorflow")
_FREED_AT_ONCE = 3

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run fixes before the framework is imported."""

    device: str = "auto"  # auto, cpu, cuda, cuda:N
    threads: int | None = None  # None leaves the framework's choice alone
    precision: str | None = None  # None leaves the framework's choice alone
    seed: int | None = None
    follows: bool = True  # follow allocations from the first one through the first steps; False if no window comes


@dataclass(frozen=True, slots=True)
class Facts:
    """What a hook knows of the run once it watches something."""

    framework_version: str
    device: str
    device_name: str
    threads: int
    parameters: Sequence[Parameter] = ()
    optimizers: Sequence[Optimizer] = ()
    precision_flags: Mapping[str, str] = field(default_factory=dict)
    runs_ahead: bool = False  # calls return before their work is done, on a CPU too
    whole_parameters: int | None = None  # trained values in all processes; None: this one has all of them
    devices: Sequence[str] = ()  # those whose memory is the run's; none: `device` alone
    batch_size: int | None = None  # samples a step, where a loader, `fit` or a trainer says so
    batch_size_from: str = ""  # which of them


FIRST = "before the first allocation"


class FrameworkHook(Protocol):
    """Reports a framework's allocations, owners and operators as the tables of `tbdprof.facts.records`.

    Call `prepare` first, before the framework is imported if possible. Then call `attach`, and `watch` any number of
    times. For each window call `start`, `mark_step` after every step, `stop` and `drain`. At the end call `close`,
    which undoes every change. Callbacks do nothing in a forked child, except that of `on_update` in torch.
    """

    name: str

    @property
    def whole_run_peak_bytes(self) -> int | None:
        """Return the allocator's own peak over the whole run, or None if the allocator does not count it."""

    @property
    def independent_total(self) -> str | None:
        """Return why the framework kept no total of its own since before the model, or None if it did."""

    @property
    def watched_since(self) -> str:
        """Return "before the first allocation" if that is true, or else what came too late."""

    def set_environment(self, setting: Setting) -> None:
        """Set what must be set before the framework is imported: environment variables and shims."""

    def prepare(self, setting: Setting) -> None:
        """Set the environment, import the framework, begin to watch its allocator, choose device and threads.

        Raise UnavailableError, with the command to type, if the framework or the device is not available.
        """

    def attach(self) -> None:
        """Join a process that has imported the framework already (`tbdprof.profile`); change no setting."""

    def watch(self, models: Sequence[object], optimizers: Sequence[object], inputs: Sequence[object] = ()) -> None:
        """Name the memory of these models, optimizers and inputs.

        `inputs` are arrays that hold mini-batches and labels and are kept from step to step. Without `models`, the hook
        finds root modules as they are used. Without `optimizers`, it takes those that update the models.
        """

    def on_update(self, callback: Callable[[object], None]) -> None:
        """Call `callback` with the optimizer after each step of any optimizer, until `close`."""

    def facts(self) -> Facts:
        """Return what is known so far of framework, device, parameters and optimizers.

        If the device setting is "auto", the device is where the watched parameters are. Before there are any
        parameters, it is the GPU if there is one.
        """

    def peaks(self, precisions: Sequence[str]) -> Peaks:
        """Return the device's peak rates in some precisions; raise UnavailableError if they are not known.

        The peak rates of a GPU are looked up. Those of a CPU are measured now, outside all windows, without drawing a
        random number.
        """

    def synchronize(self) -> None:
        """Wait until the device has finished all work submitted so far."""

    def start(self, window: str) -> None:
        """Begin to record a window.

        "memory" records allocations, owners and the spans that contain them. "kernels" records spans with their shapes
        and what they compute (`tbdprof.facts.work`), and kernels on a GPU. It neither waits nor reads owners.

        Raise UnavailableError, and change nothing, if another profiler is active. Raise UsageError for another name, or
        while a window is open.
        """

    def mark_step(self) -> None:
        """Set a step marker where a step ends, for `drain` to return; in memory windows, also read the owners."""

    def stop(self) -> None:
        """End the window and remove every callback, whatever is raised on the way."""

    def drain(self, strings: Strings) -> Drained:
        """Return what the window recorded; a second call returns nothing."""

    def close(self) -> None:
        """Restore everything to its state before `prepare` or `attach`."""

    def out_of_memory(self, error: BaseException) -> str | None:
        """Return the framework's words about the failed request if the error means out of memory, else None."""

    def give_back_memory(self) -> str | None:
        """Release the memory that the allocator keeps unused, for other processes; return why not if it keeps it."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What a window recorded: tables by kind, the sequence number at each `mark_step`, and why data is missing.

    `given` has what each step's models were given, by unit: samples, and tokens where the input is integer tokens.
    `given_from` says where the samples are from, `given_unknown` why those of a step are not known.
    """

    tables: Tables
    marks: Sequence[int]
    missing: Mapping[str, str] = field(default_factory=dict)
    given: Sequence[Mapping[str, float]] = ()
    given_from: str = ""
    given_unknown: str = ""


def disagreements(other_sizes: int, still_in_use: int) -> str:
    """Return how a framework's events contradict each other, or "" if they do not."""
    parts = []
    if other_sizes:
        parts.append(f"{other_sizes} frees reported another size than was allocated")
    if still_in_use:
        parts.append(f"{still_in_use} allocations at addresses still in use")
    return "; ".join(parts)


@functools.lru_cache(maxsize=1)  # what adds up to no such total is asked again at each event
def that_add_up(sizes: Sequence[tuple[_Key, int]], total: int) -> Sequence[_Key]:
    """Return the fewest keys whose sizes add up to a total, the first of like ones; none if no such keys are found."""
    for count in range(1, _FREED_AT_ONCE + 1):
        for found in itertools.combinations(sizes, count):
            if sum(size for _, size in found) == total:
                return tuple(key for key, _ in found)
    return ()


def about(framework: str) -> About:
    """Return what is known of a framework without importing it."""
    found: About = importlib.import_module(f"tbdprof.hooks.on_{framework}").ABOUT
    return found


def load(framework: str) -> FrameworkHook:
    """Return a new hook for a framework, importing the hook's module but not yet the framework."""
    if framework not in FRAMEWORKS:
        raise UsageError(f"unknown framework {framework!r}: choose {' or '.join(FRAMEWORKS)}")
    module = importlib.import_module(f"tbdprof.hooks.on_{framework}")
    hook: FrameworkHook = module.hook()
    return hook
