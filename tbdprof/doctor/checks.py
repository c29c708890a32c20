"""What works on this machine, what does not and why, and what to type; this module prints nothing.

Each framework is imported in its own process, so a crash does no harm.
"""

import ctypes
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import psutil

from tbdprof.collect import fresh, host
from tbdprof.collect.gpu import cuda_driver
from tbdprof.collect.gpu.nvidia import Counters, Nvidia, counters, cupti, driver
from tbdprof.doctor import methods
from tbdprof.doctor.methods import Levels, Subject
from tbdprof.errors import UsageError
from tbdprof.hooks import FRAMEWORKS, about

IMPORT_LIMIT_S = 180


@dataclass(frozen=True, slots=True)
class Framework:
    """Whether a framework can be used; `reason` says why not, `command` what to type."""

    name: str
    version: str | None  # None if not installed or not known
    gpus: int | None  # how many it can use; None if it cannot be imported
    reason: str | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Library:
    """A library that the system has to provide; `command` is what to type if it is missing."""

    name: str
    present: bool
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """The machine as this process may use it."""

    python: str
    cpu: str | None
    cores: float  # by affinity and quota
    machine_cores: int | None
    memory_bytes: int  # the machine's, or a control group's limit if that is smaller


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings."""

    host: Host
    frameworks: tuple[Framework, ...]
    libraries: tuple[Library, ...]
    nvidia: Nvidia
    counters: Counters
    cupti: Path | None
    levels: Levels  # of one GPU
    looked_at: Subject | None = None  # the GPU of `levels`


def examine(frameworks: Iterable[str] = FRAMEWORKS, device: str = "cuda:0") -> Examination:
    """Examine the machine, and one GPU in detail.

    This takes as long as importing each framework, and twice as long for a framework that has a GPU. Raise UsageError
    if `device` is not the name of a GPU, or is beyond the last one.
    """
    index = _index(device)
    looked_at = methods.look_at(index)
    if looked_at.count and index >= looked_at.count:
        raise UsageError(f"there is no {device} here: the last one is cuda:{looked_at.count - 1}")
    found = tuple(framework(name) for name in frameworks)
    return Examination(
        host=_host(),
        frameworks=found,
        libraries=libraries(),
        nvidia=driver(),
        counters=counters(),
        cupti=cupti(),
        levels=methods.examine(
            {each.name: client(each.name) for each in found if each.gpus and about(each.name).records_gpu}, index
        ),
        looked_at=looked_at,
    )


def availability(name: str) -> str | None:
    """Return why a framework cannot be used, or None if nothing prevents it; import nothing."""
    if find_spec(name) is None:
        return f"not installed: {_install(name)}"
    if name not in FRAMEWORKS:
        return None
    missing = [library.name for library in libraries(about(name).libraries) if not library.present]
    return f"{' and '.join(missing)} missing: {_system_command()}" if missing else None


def framework(name: str, probe: str | None = None, limit_s: float = IMPORT_LIMIT_S) -> Framework:
    """Import a framework in a fresh process and return the result."""
    if find_spec(name) is None:
        return Framework(name, None, None, "not installed", _install(name))
    printed, reason = _run(probe or about(name).probe, limit_s)
    if reason is not None:
        return Framework(name, _version(name), None, reason, _remedy(reason))
    version, gpus = printed.split()[-2:]
    return Framework(name, version, int(gpus))


def client(name: str, probe: str | None = None, limit_s: float = IMPORT_LIMIT_S) -> str | None:
    """Return why a framework does not record a GPU's activity itself, or None if it does."""
    printed, reason = _run(probe or about(name).records_gpu or "", limit_s)
    return reason or (printed.splitlines() or [""])[-1] or None


def libraries(names: Iterable[str] | None = None) -> tuple[Library, ...]:
    """Return which system libraries can be loaded; by default those that any framework needs."""
    names = _packages() if names is None else names
    found = ((name, _can_load(name)) for name in names)
    return tuple(Library(name, can, None if can else _system_command()) for name, can in found)


def _index(device: str) -> int:
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise UsageError(f"unknown device {device!r}: give the GPU to look at as cuda:N")
    return cuda_driver.index_of(device)


def _host() -> Host:
    """Return the machine as this process may use it."""
    return Host(
        python=platform.python_version(),
        cpu=host.processor_name(),
        cores=host.usable_cores(),
        machine_cores=os.cpu_count(),
        memory_bytes=host.memory_limit_bytes() or int(psutil.virtual_memory().total),
    )


def _run(code: str, limit_s: float) -> tuple[str, str | None]:
    """Return what a fresh interpreter printed, and why it failed."""
    command = [sys.executable, "-c", code]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        status, printed, complaints = fresh.run(command, limit_s, quiet)
    except subprocess.TimeoutExpired:
        return "", f"its import had not ended after {limit_s:g} s"
    if status < 0:
        return "", f"its import was killed by {signal.Signals(-status).name}"
    if status:
        said = complaints.strip().splitlines()
        return "", said[-1] if said else f"its import ended with {status}"
    return printed, None


def _can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # the distribution has another name: mxnet-cu112
        return None


def _remedy(reason: str) -> str | None:
    return _system_command() if any(library in reason for library in _packages()) else None


def _install(name: str) -> str:
    return about(name).install(name) if name in FRAMEWORKS else f"pip install 'tbdprof[{name}]'"


def _system_command() -> str:
    return f"apt-get install -y {' '.join(_packages().values())}"


def _packages() -> dict[str, str]:
    """Return the system's libraries that any framework needs, each with its Debian package."""
    return {library: package for name in FRAMEWORKS for library, package in about(name).libraries.items()}
