"""What is known of a framework without importing it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tbdprof.facts.ranks import Rank


def _no_rank() -> Rank | None:
    return None


@dataclass(frozen=True, slots=True)
class FailureText:
    """Where a framework's message about a failed allocation has its figures; None: it does not have them.

    A size is a number and a unit (bytes, B, KiB, MiB, GiB or TiB), each a group.
    """

    asked: re.Pattern[str] | None = None  # a size
    asked_tensor: re.Pattern[str] | None = None  # lengths of the dimensions, with commas between them; data type
    device: re.Pattern[str] | None = None  # two sizes: the device's memory, and the part that is free
    allocated: re.Pattern[str] | None = None  # a size: the sum of all live blocks
    of_host: re.Pattern[str] | None = None  # what only a message about the host's memory has


@dataclass(frozen=True, slots=True)
class About:
    """What doctor, attaching and instruments need to know of a framework before it is imported.

    `probe` and `records_gpu` are programs for a fresh Python process. `probe` prints the framework's version and how
    many GPUs it can use. `records_gpu` prints nothing if the framework's own profiler records GPU activity, else why it
    does not.
    """

    title: str
    probe: str
    no_step: str = "no optimizer stepped"  # what was not seen of a script that imports it and is not recorded
    records_gpu: str | None = None  # None if it never does; CUPTI is used instead
    number_of_thread: Callable[[int], int] = int  # how the framework's profiler numbers a thread of Python's number
    failure_text: FailureText = FailureText()
    context: str | None = None  # the module whose `main` measures how much GPU memory the framework's libraries take
    libraries: Mapping[str, str] = field(default_factory=dict)  # system libraries: name -> Debian package
    without_dependencies: str | None = None  # what pip has to install without what it asks for
    imported_by: tuple[str, ...] = ()  # packages that import the framework themselves
    rank: Callable[[], Rank | None] = (
        _no_rank  # which of several processes this is, as the framework says; waits for none
    )

    def install(self, name: str) -> str:
        """Return what to type to install the framework of this name."""
        command = f"pip install 'tbdprof[{name}]'"
        apart = self.without_dependencies
        return command if apart is None else f"{command} && pip install --no-deps {apart}"
