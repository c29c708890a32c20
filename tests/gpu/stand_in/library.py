"""How a stand-in is compiled, and the environment of a process that is to see it: for every framework the same."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tbdprof.collect.gpu.context import has_driver

SHARED = Path(__file__).parent
ROOT = SHARED.parents[2]
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-shared", "-fPIC")
LINKED = ("-Wl,-Bsymbolic", "-ldl", "-lpthread")  # what a stand-in calls is its own, whoever has the name as well


def why_not(*tools: str) -> str | None:
    """Return why nothing can be simulated here, whatever the framework; None where it can."""
    if has_driver():
        return "an NVIDIA driver is there: nothing is to be simulated"
    if not all(map(shutil.which, ("cc", *tools))):
        return "there is no C compiler"
    return None


def compiled(framework: str, library: Path, names: Iterable[str], more: Iterable[object] = ()) -> Path:
    """Compile a framework's stand-in, with what else the compiler is given; return its folder, where it has names."""
    sources = sorted([*SHARED.glob("*.c"), *(SHARED / f"on_{framework}").glob("*.c")])
    given = map(str, (f"-DFOR_{framework.upper()}=1", f"-I{SHARED}", *sources, *more))
    subprocess.run(["cc", *FLAGS, *given, "-o", str(library), *LINKED], check=True, timeout=60)
    for name in names:
        (library.parent / name).symlink_to(library.name)
    return library.parent


def environment(folder: Path, **settings: object) -> Mapping[str, str]:
    """Return the environment of a process that is to see the device; settings are those of the library."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{ROOT / 'tests' / 'support'}",
        "OMP_NUM_THREADS": "1",
        **{name: str(value) for name, value in settings.items()},
    }
