"""What is known of a framework without importing it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class About:
    """What doctor, attaching and instruments ask of a framework before it is imported.

    `probe` and `records_gpu` are programs for a fresh Python. The first prints the framework's version and how many
    GPUs it can use. The second prints nothing where the framework's own profiler records a GPU's activity, else why it
    does not.
    """

    title: str
    probe: str
    records_gpu: str | None = None  # None: it never does, and CUPTI is asked instead
    context: str | None = None  # the module whose `main` measures what the framework's libraries take of a GPU
    libraries: Mapping[str, str] = field(default_factory=dict)  # of the system: name -> Debian package
    numpy_below: int | None = None  # major version
    imported_by: tuple[str, ...] = ()  # packages that import the framework themselves
