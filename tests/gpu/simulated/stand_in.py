"""Makes the library that torch's CUDA build takes for a card's, and the environment of a process that is to see it."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from tbdprof.collect.gpu.context import has_driver

SOURCES = Path(__file__).parent
ROOT = SOURCES.parents[2]
LIBRARY = "libcuda.so.1"
OTHER_NAME = "libnvidia-ml.so.1"
TOOLKITS = ("triton/backends/nvidia/include", "/usr/local/cuda-13.0/include", "/usr/local/cuda/include")
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}")


def why_not() -> str | None:
    """Return why nothing can be simulated here, None where it can."""
    if has_driver():
        return "an NVIDIA driver is there: nothing is to be simulated"
    if shutil.which("cc") is None:
        return "there is no C compiler"
    packages = _packages()
    if packages is None or not (packages / "torch/lib/libtorch_cuda.so").exists():
        return "torch is not here, or was built without CUDA"
    if _headers(packages) is None:
        return "CUDA's headers are not here: torch's wheels for CUDA 13 bring them, but for `crt`, which triton has"
    return None


def make(folder: Path) -> Path:
    """Compile the library into a folder, under the names of the driver's two; return the folder."""
    packages = _packages()
    headers = None if packages is None else _headers(packages)
    assert headers is not None
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    include = [f"-I{each}" for each in (SOURCES, *headers)]
    command = ["cc", *FLAGS, *include, *sources, "-o", str(folder / LIBRARY), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, timeout=60)
    (folder / OTHER_NAME).symlink_to(LIBRARY)
    return folder


def environment(folder: Path, **settings: object) -> Mapping[str, str]:
    """Return the environment of a process that is to see the device; settings are those of the library."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "LD_PRELOAD": str(folder / LIBRARY),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{ROOT / 'tests' / 'support'}",
        "OMP_NUM_THREADS": "1",
        "SIMULATED_USERS": str(folder / "users"),
        **{name: str(value) for name, value in settings.items()},
    }


def _packages() -> Path | None:
    """Return the folder that torch lies in, which is not imported: a library has to be there before it."""
    found = find_spec("torch")
    return None if found is None or found.origin is None else Path(found.origin).parents[1]


def _headers(packages: Path) -> list[Path] | None:
    own = packages / "nvidia/cu13/include"
    others = [packages / each for each in TOOLKITS if (packages / each / "crt/host_defines.h").exists()]
    return [own, *others[:1]] if (own / "cupti.h").exists() and others else None
