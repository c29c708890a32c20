"""What works on this machine, what does not and why, and what to type: facts, nothing printed.

A framework is imported in a process of its own, so that one that crashes harms nobody.
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

IMPORT_LIMIT_S = 180

# Each prints the version and how many GPUs the framework can use. MXNet reads numpy.bool, which
# numpy has dropped.
PROBES = {
    "torch": "import torch; print(torch.__version__, torch.cuda.device_count())",
    "mxnet": (
        "import numpy; vars(numpy).setdefault('bool', bool); import mxnet; "
        "print(mxnet.__version__, mxnet.context.num_gpus())"
    ),
    "tensorflow": (
        "import tensorflow; print(tensorflow.__version__, len(tensorflow.config.list_physical_devices('GPU')))"
    ),
}
# Whether those that record a GPU's activity themselves can do so here; printed is nothing, or why not.
CLIENTS = {
    "torch": (
        "from torch import profiler; "
        "can = profiler.ProfilerActivity.CUDA in profiler.supported_activities(); "
        "print('' if can else 'this build records no activity of CUDA')"
    ),
    "tensorflow": "import tensorflow; print('' if tensorflow.test.is_built_with_cuda() else 'not built for CUDA')",
}
# What MXNet's wheel takes from the system, and the Debian package that has it.
LIBRARIES = {"libgomp.so.1": "libgomp1", "libquadmath.so.0": "libquadmath0"}


@dataclass(frozen=True, slots=True)
class Framework:
    """Whether a framework can be used: `reason` is why not, `command` what to type about it."""

    name: str
    version: str | None  # None: not installed, or it cannot be told
    gpus: int | None  # how many it can use; None: it cannot be imported
    reason: str | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Library:
    """A library the system has to bring; `command` is what to type where it is not there."""

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
    memory_bytes: int  # the machine's, or a control group's limit where that is smaller


@dataclass(frozen=True, slots=True)
class Examination:
    """All that was found."""

    host: Host
    frameworks: tuple[Framework, ...]
    libraries: tuple[Library, ...]
    nvidia: Nvidia
    counters: Counters
    cupti: Path | None
    levels: Levels  # of one GPU
    looked_at: Subject | None = None  # that one


def examine(frameworks: Iterable[str] = tuple(PROBES), device: str = "cuda:0") -> Examination:
    """Look at everything, and closer at one GPU; takes as long as importing each framework, twice where it has a GPU.

    Raises UsageError where there is no such GPU among several, or that is no name of one.
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
            {each.name: client(each.name) for each in found if each.gpus and each.name in CLIENTS}, index
        ),
        looked_at=looked_at,
    )


def availability(name: str) -> str | None:
    """Return why a framework cannot be used, None where nothing is against it; imports nothing."""
    if find_spec(name) is None:
        return f"not installed: {_install(name)}"
    if name != "mxnet":
        return None
    numpy_version = metadata.version("numpy")
    if int(numpy_version.partition(".")[0]) >= 2:
        return f"needs numpy below 2, {numpy_version} is installed: pip install 'numpy<2'"
    missing = [library.name for library in libraries() if not library.present]
    return f"{' and '.join(missing)} missing: {_system_command()}" if missing else None


def framework(name: str, probe: str | None = None, limit_s: float = IMPORT_LIMIT_S) -> Framework:
    """Import a framework in a fresh process and say how that went."""
    if find_spec(name) is None:
        return Framework(name, None, None, "not installed", _install(name))
    printed, reason = _run(probe or PROBES[name], limit_s)
    if reason is not None:
        return Framework(name, _version(name), None, reason, _remedy(name, reason))
    version, gpus = printed.split()[-2:]
    return Framework(name, version, int(gpus))


def client(name: str, probe: str | None = None, limit_s: float = IMPORT_LIMIT_S) -> str | None:
    """Return why a framework does not record a GPU's activity itself, None where it does."""
    printed, reason = _run(probe or CLIENTS[name], limit_s)
    return reason or (printed.splitlines() or [""])[-1] or None


def libraries(names: Iterable[str] = tuple(LIBRARIES)) -> tuple[Library, ...]:
    """Say which of the system's libraries can be loaded."""
    found = ((name, _can_load(name)) for name in names)
    return tuple(Library(name, can, None if can else _system_command()) for name, can in found)


def _index(device: str) -> int:
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise UsageError(f"unknown device {device!r}: give the GPU to look at as cuda:N")
    return cuda_driver.index_of(device)


def _host() -> Host:
    """Describe the machine as this process may use it."""
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


def _remedy(name: str, reason: str) -> str | None:
    if any(library in reason for library in LIBRARIES):
        return _system_command()
    if name == "mxnet" and "numpy" in reason:
        return "pip install 'numpy<2'"
    return None


def _install(name: str) -> str:
    return f"pip install 'tbdprof[{name}]'"


def _system_command() -> str:
    return f"apt-get install -y {' '.join(LIBRARIES.values())}"
