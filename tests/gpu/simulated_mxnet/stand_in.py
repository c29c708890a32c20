"""Makes the library that MXNet's build for CUDA 11 takes for all of CUDA's, and a process's environment to see it."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from tbdprof.collect.gpu.context import has_driver

SOURCES = Path(__file__).parent
ROOT = SOURCES.parents[2]
LIBRARY = "stand_in.so"
FLAGS = ("-std=gnu11", "-O1", "-w", "-shared", "-fPIC")
NEEDED = re.compile(r"lib(?:cu\w+|nccl|nvrtc|nvToolsExt)\.so[.\d]*")
# Of these nothing is to be told: they compute, or set what only matters to what computes.
SILENT = re.compile(r"[gG]emm|[sS]et|^cudnn|^nccl|^nvtx|Generate|GetErrorString|cudaDevice|dot_v2")


def why_not() -> str | None:
    """Return why nothing can be simulated here, None where it can."""
    if has_driver():
        return "an NVIDIA driver is there: nothing is to be simulated"
    if not all(map(shutil.which, ("cc", "nm", "readelf"))):
        return "there is no C compiler"
    library = _mxnet()
    if library is None or not _needed(library):
        return "MXNet is not here, or was built without CUDA: pip install mxnet-cu112"
    return None


def make(folder: Path) -> Path:
    """Compile the library into a folder, under the names of all that MXNet asks for; return the folder."""
    library = _mxnet()
    assert library is not None
    needed = _needed(library)
    own = "".join(path.read_text() for path in sorted(SOURCES.glob("*.c")))
    (folder / "others.c").write_text("#include <stdio.h>\n" + "".join(_others(library, own)))
    versions = {name: f"{name} {{ global: {_prefix(name)}*; __{_prefix(name)}*; }};\n" for name in needed}
    (folder / "versions").write_text("".join(versions[name] for name in versions if name not in _unversioned(needed)))
    sources = [*sorted(map(str, SOURCES.glob("*.c"))), str(folder / "others.c")]
    link = [f"-Wl,--version-script={folder / 'versions'}", "-o", str(folder / LIBRARY), "-ldl", "-lpthread"]
    subprocess.run(["cc", *FLAGS, *sources, *link], check=True, timeout=60)
    for name in needed:
        (folder / name).symlink_to(LIBRARY)
    return folder


def environment(folder: Path, **settings: object) -> Mapping[str, str]:
    """Return the environment of a process that is to see the device; settings are those of the library."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{ROOT / 'tests' / 'support'}",
        "OMP_NUM_THREADS": "1",
        **{name: str(value) for name, value in settings.items()},
    }


def _mxnet() -> Path | None:
    """Return MXNet's library; MXNet is not imported, for it cannot be without what is to be made."""
    found = find_spec("mxnet")
    library = None if found is None or found.origin is None else Path(found.origin).with_name("libmxnet.so")
    return library if library is not None and library.exists() else None


def _needed(library: Path) -> list[str]:
    return NEEDED.findall(_printed("readelf", "-d", library))


def _unversioned(needed: list[str]) -> list[str]:
    return [name for name in needed if name.startswith(("libcuda.", "libnccl."))]


def _prefix(name: str) -> str:
    """Return what the names of a library's functions begin with."""
    return {"libcudart": "cuda", "libnvToolsExt": "nvtx"}.get(name.partition(".")[0], name.partition(".")[0][3:])


def _others(library: Path, own: str) -> Iterator[str]:
    """Yield the functions that are not stood in for, which say so once and return 0."""
    prefixes = tuple({_prefix(name) for name in _needed(library)} | {"__cuda", "cu"})
    here = set(re.findall(r"\b(\w+)\(", own)) | set(_made_by_macros(own))
    for line in _printed("nm", "-D", "--undefined-only", library).splitlines():
        name = line.split()[-1].partition("@")[0]
        if name.startswith(prefixes) and name not in here and re.match(r"_*(cu[a-z]*[A-Z]|nccl|nvrtc|nvtx)", name):
            said = (
                ""
                if SILENT.search(name)
                else f'static int told; if (!told++) fputs("{name} is not stood in for\\n", stderr); '
            )
            yield f"long {name}() {{ {said}return 0; }}\n"


def _made_by_macros(own: str) -> Iterator[str]:
    for each in re.findall(r"^DESCRIBED\((\w+)\)", own, re.M):
        yield from (f"cudnnCreate{each}", f"cudnnDestroy{each}")
    for way in re.findall(r"^CONVOLUTION\((\w+),", own, re.M):
        yield from (each.replace("##WAY##", way) for each in re.findall(r"cudnn\w+##WAY##\w+", own))


def _printed(*command: object) -> str:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=True).stdout
