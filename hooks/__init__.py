"""The seam between tbdprof and the frameworks: a hook reports facts and classifies nothing.

A hook is the one module named `on_<framework>`; it alone imports that framework, and only `load` imports it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tbdprof.errors import UsageError
from tbdprof.hooks.about import About

if TYPE_CHECKING:  # numpy comes with it, which `about` does without
    from tbdprof.facts.records import Optimizer, Parameter, Peaks, Strings, Tables

FRAMEWORKS: tuple[str, ...] = ("torch", "mxnet", "tensorflow")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run fixes before the framework is imported."""

    device: str = "auto"  # auto, cpu, cuda, cuda:N
    threads: int | None = None  # None: leave the framework's choice alone
    precision: str | None = None  # None: leave the framework's choice alone
    seed: int | None = None
    follows: bool = True  # allocations from the first one on, until the first steps end; False: no window will come


@dataclass(frozen=True, slots=True)
class Facts:
    """What a hook can tell about the run once it watches something."""

    framework_version: str
    device: str
    device_name: str
    threads: int
    parameters: Sequence[Parameter] = ()
    optimizers: Sequence[Optimizer] = ()
    precision_flags: Mapping[str, str] = field(default_factory=dict)
    runs_ahead: bool = False  # goes on while what it was asked for is still to be done, on a CPU too


FIRST = "before the first allocation"


class FrameworkHook(Protocol):
    """Reports a framework's allocations, owners and operators as the tables of `tbdprof.facts.records`.

    Order of calls: `prepare` (before the framework is imported where that can be had), `attach`, `watch` any number of
    times, then for each window `start`, `mark_step` after every step, `stop`, `drain`; at last `close`, which puts back
    everything that was changed. Callbacks are inert in a forked child.
    """

    name: str

    @property
    def whole_run_peak_bytes(self) -> int | None:
        """Return the allocator's own peak over the whole run, None where it is not counted."""

    @property
    def independent_total(self) -> str | None:
        """Return why the framework has no total of its own since before the model, None where it has."""

    @property
    def watched_since(self) -> str:
        """Return "before the first allocation" where that is true, else what came too late for it."""

    def set_environment(self, setting: Setting) -> None:
        """Set what must be set before the framework is imported: environment and shims."""

    def prepare(self, setting: Setting) -> None:
        """Set the environment, import the framework, begin to watch its allocator, choose device and threads.

        Raises UnavailableError when the framework or the device cannot be had, with the command to type.
        """

    def attach(self) -> None:
        """Join a process in which the framework was imported already (`tbdprof.profile`); changes no setting."""

    def watch(self, models: Sequence[object], optimizers: Sequence[object], inputs: Sequence[object] = ()) -> None:
        """Say whose memory to name; `inputs` are arrays kept from step to step that hold mini-batches and labels.

        Where there are no models, root modules are found as they are used; where there are no optimizers, those that
        update the models are.
        """

    def on_update(self, callback: Callable[[object], None]) -> None:
        """Call back with the optimizer after each step any optimizer takes, until `close`."""

    def facts(self) -> Facts:
        """Return what is known of framework, device, parameters and optimizers by now.

        With the device "auto" it is where the watched parameters are, and the GPU, if any, until there are some.
        """

    def peaks(self, precisions: Sequence[str]) -> Peaks:
        """Return the most the device can do in some precisions; raises UnavailableError where that is not known.

        A GPU's are looked up; a CPU's are measured now, without any random number being drawn, outside all windows.
        """

    def synchronize(self) -> None:
        """Wait until the device has done everything asked of it so far."""

    def start(self, window: str) -> None:
        """Begin to record a window; raises UnavailableError when another profiler is active, and then changes nothing.

        "memory" records allocations, owners and the spans they lie in; "kernels" records spans with their shapes and
        what they compute (`tbdprof.facts.work`), and on a GPU kernels, and neither waits nor reads owners.
        Another name is a UsageError, and so is a window while one is open.
        """

    def mark_step(self) -> None:
        """Mark the place in the order where a step ends, which `drain` tells; in memory windows read the owners."""

    def stop(self) -> None:
        """End the window and take every callback off, whatever is raised on the way."""

    def drain(self, strings: Strings) -> Drained:
        """Return what the window recorded, once."""

    def close(self) -> None:
        """Put everything back as it was before `prepare` or `attach`."""

    def out_of_memory(self, error: BaseException) -> str | None:
        """Return what was asked for, in the framework's words, if the error means out of memory; else None."""

    def give_back_memory(self) -> str | None:
        """Let go of what the allocator keeps unused, for other processes; return why not where it keeps it."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What a window recorded: tables by kind, the sequence at each `mark_step`, and what could not be had, and why."""

    tables: Tables
    marks: Sequence[int]
    missing: Mapping[str, str] = field(default_factory=dict)


def disagreements(other_sizes: int, still_in_use: int) -> str:
    """Return in which ways a framework's events contradict each other, "" where they do not."""
    told = []
    if other_sizes:
        told.append(f"{other_sizes} frees told another size than was allocated")
    if still_in_use:
        told.append(f"{still_in_use} allocations at addresses still in use")
    return "; ".join(told)


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
