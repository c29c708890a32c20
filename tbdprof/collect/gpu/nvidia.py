"""What the NVIDIA driver reports of itself and its devices, and what it lets this user read."""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PARAMETERS = Path("/proc/driver/nvidia/params")
CUDA_PARENTS = (Path("/usr/local"), Path("/opt"))


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device by nvidia-smi's number, which may differ from CUDA's; compute capability in the form `9.0`."""

    index: int
    name: str
    compute_capability: str
    memory_bytes: int
    is_divided: bool | None = None  # into instances (MIG); None if not reported or not possible


@dataclass(frozen=True, slots=True)
class Nvidia:
    """The driver and its devices; `reason` says why something is not known."""

    driver: str | None = None
    cuda: str | None = None  # the newest CUDA version that the driver supports
    gpus: tuple[Gpu, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """Whether this user may read performance counters; None if not known, and `reason` says why."""

    readable: bool | None
    reason: str | None = None


def driver(nvml: Any = None) -> Nvidia:
    """Return what the driver reports of itself and its devices; `nvml` can replace pynvml."""
    if nvml is None:
        import pynvml

        nvml = pynvml
    version, cuda = None, None
    try:
        nvml.nvmlInit()
        try:
            version = str(nvml.nvmlSystemGetDriverVersion())
            cuda = _cuda_version(nvml.nvmlSystemGetCudaDriverVersion())
            gpus = tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        return Nvidia(version, cuda, reason=f"the NVIDIA driver does not answer: {error}")
    return Nvidia(version, cuda, gpus, None if gpus else "the NVIDIA driver shows no device")


def counters(parameters: Path = PARAMETERS, *, user: int | None = None) -> Counters:
    """Return whether this user may read the devices' performance counters."""
    try:
        lines = parameters.read_text().splitlines()
    except FileNotFoundError:
        return Counters(None, "no NVIDIA driver is loaded")
    except OSError as error:
        return Counters(None, f"the driver's parameters cannot be read: {error.strerror}")
    settings = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    restricted = settings.get("RmProfilingAdminOnly")
    if restricted not in ("0", "1"):
        return Counters(None, "the driver's parameters do not say (RmProfilingAdminOnly)")
    if restricted == "0" or (os.geteuid() if user is None else user) == 0:
        return Counters(True)
    return Counters(
        False,
        "the driver keeps them for root: load its module with NVreg_RestrictProfilingToAdminUsers=0",
    )


def cupti(folders: Iterable[Path] | None = None) -> Path | None:
    """Return the file of CUPTI, NVIDIA's profiling library; prefer an installed wheel, then the newest."""
    for folder in _cuda_folders() if folders is None else folders:
        found = max(folder.rglob("libcupti.so.*"), key=lambda file: file.name, default=None)
        if found is not None:
            return found
    return None


def _cuda_folders() -> list[Path]:
    wheels = find_spec("nvidia")
    installed = list(wheels.submodule_search_locations or ()) if wheels else []
    toolkits = [path for parent in CUDA_PARENTS for path in sorted(parent.glob("cuda*"))]
    return [*map(Path, installed), *toolkits]


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    divided = None
    with suppress(nvml.NVMLError, AttributeError):  # cards that cannot be divided refuse this call
        divided = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    return Gpu(index, str(nvml.nvmlDeviceGetName(handle)), f"{major}.{minor}", int(memory.total), divided)
