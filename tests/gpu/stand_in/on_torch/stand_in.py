"""Makes the library that torch's CUDA build takes for a card's: it is preloaded, and hides the real ones."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from gpu.stand_in import library

LIBRARY = "libcuda.so.1"
TOOLKITS = ("triton/backends/nvidia/include", "/usr/local/cuda-13.0/include", "/usr/local/cuda/include")


def why_not() -> str | None:
    """Return why nothing can be simulated here, None where it can."""
    packages = _packages()
    if packages is None or not (packages / "torch/lib/libtorch_cuda.so").exists():
        return "torch is not here, or was built without CUDA"
    if _headers(packages) is None:
        return "CUDA's headers are not here: torch's wheels for CUDA 13 bring them, but for `crt`, which triton has"
    return library.why_not()


def make(folder: Path) -> Path:
    """Compile the library into a folder, under the names of the driver's two; return the folder."""
    packages = _packages()
    headers = None if packages is None else _headers(packages)
    assert headers is not None
    more = (f"-Wl,-soname,{LIBRARY}", *(f"-I{each}" for each in headers))
    return library.compiled("torch", folder / LIBRARY, ["libnvidia-ml.so.1"], more)


def environment(folder: Path, **settings: object) -> Mapping[str, str]:
    """Return the environment of a process that is to see the device; settings are those of the library."""
    own = {"LD_PRELOAD": folder / LIBRARY, "SIMULATED_USERS": folder / "users"}
    return library.environment(folder, **own, **settings)


def _packages() -> Path | None:
    """Return the folder that torch lies in, which is not imported: a library has to be there before it."""
    found = find_spec("torch")
    return None if found is None or found.origin is None else Path(found.origin).parents[1]


def _headers(packages: Path) -> list[Path] | None:
    own = packages / "nvidia/cu13/include"
    others = [packages / each for each in TOOLKITS if (packages / each / "crt/host_defines.h").exists()]
    return [own, *others[:1]] if (own / "cupti.h").exists() and others else None
