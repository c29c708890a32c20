"""Makes the library that MXNet's build for CUDA 11 takes for all of CUDA's."""

import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from gpu.stand_in import library
from gpu.stand_in.library import environment as environment

NEEDED = re.compile(r"lib(?:cu\w+|nccl|nvrtc|nvToolsExt)\.so[.\d]*")
# Of these nothing is to be reported: they compute, or set what only matters to what computes.
SILENT = re.compile(r"[gG]emm|[sS]et|^cudnn|^nccl|^nvtx|Generate|GetErrorString|cudaDevice|dot_v2")


def why_not() -> str | None:
    """Return why nothing can be simulated here, None where it can."""
    mxnet = _mxnet()
    missing = library.why_not("nm", "readelf")
    if missing is None and (mxnet is None or not _needed(mxnet)):
        return "MXNet is not here, or was built without CUDA: pip install mxnet-cu112"
    return missing


def make(folder: Path) -> Path:
    """Compile the library into a folder, under the names of all that MXNet asks for; return the folder."""
    mxnet = _mxnet()
    assert mxnet is not None
    needed = _needed(mxnet)
    own, others, versions = folder / "own.so", folder / "others.c", folder / "versions"
    library.compiled("mxnet", own, [])
    others.write_text('#include "stand_in.h"\n' + "".join(_others(mxnet, _functions(own, "--defined-only"))))
    versions.write_text("".join(map(_version, needed)))
    return library.compiled("mxnet", folder / "stand_in.so", needed, [others, f"-Wl,--version-script={versions}"])


def _mxnet() -> Path | None:
    """Return MXNet's library; MXNet is not imported, for it cannot be without what is to be made."""
    found = find_spec("mxnet")
    mxnet = None if found is None or found.origin is None else Path(found.origin).with_name("libmxnet.so")
    return mxnet if mxnet is not None and mxnet.exists() else None


def _needed(mxnet: Path) -> list[str]:
    return NEEDED.findall(_printed("readelf", "-d", mxnet))


def _version(name: str) -> str:
    """Return what the functions of one of CUDA's libraries are bound to; the driver's and NCCL's are to nothing."""
    unbound, prefix = name.startswith(("libcuda.", "libnccl.")), _prefix(name)
    return "" if unbound else f"{name} {{ global: {prefix}*; __{prefix}*; }};\n"


def _prefix(name: str) -> str:
    """Return what the names of a library's functions begin with."""
    return {"libcudart": "cuda", "libnvToolsExt": "nvtx"}.get(name.partition(".")[0], name.partition(".")[0][3:])


def _others(mxnet: Path, here: set[str]) -> Iterator[str]:
    """Yield the functions that are not stood in for, which say so once and return 0."""
    prefixes = tuple({_prefix(name) for name in _needed(mxnet)} | {"__cuda", "cu"})
    for name in sorted(_functions(mxnet, "--undefined-only") - here):
        if name.startswith(prefixes) and re.match(r"_*(cu[a-z]*[A-Z]|nccl|nvrtc|nvtx)", name):
            said = "" if SILENT.search(name) else f'not_simulated("{name}"); '
            yield f"long {name}() {{ {said}return 0; }}\n"


def _functions(path: Path, which: str) -> set[str]:
    return {line.split()[-1].partition("@")[0] for line in _printed("nm", "-D", which, path).splitlines()}


def _printed(*command: object) -> str:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=True).stdout
