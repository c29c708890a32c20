"""Where the packages lie; everything else is said in pyproject.toml."""

import zlib
from pathlib import Path

from setuptools import Extension, find_packages, setup

MAPPED = ("hooks", "suite")  # folder of the repository -> tbdprof.<folder>


def mapped_packages(folder: str) -> list[str]:
    """Return the package names of a mapped folder."""
    inner = (f"tbdprof.{folder}.{name}" for name in find_packages(folder))
    return [f"tbdprof.{folder}", *inner]


# Plain C, loaded with ctypes: it needs a C compiler but no header of Python, and suits every version of Python.
# Without a compiler the installation goes on, and the hook uses Python functions (docs/mxnet.md).
NATIVE = sorted(Path("hooks/on_mxnet/native").glob("*.[ch]"))
EVENTS = Extension(
    "tbdprof.hooks.on_mxnet.native._events",
    sources=[str(path) for path in NATIVE if path.suffix == ".c"],
    depends=[str(path) for path in NATIVE],
    define_macros=[("TBD_VERSION", f"{zlib.crc32(b''.join(path.read_bytes() for path in NATIVE))}u")],
    extra_compile_args=["-O2", "-fexceptions", "-pthread"],
    extra_link_args=["-pthread"],
    py_limited_api=True,
    optional=True,
)

setup(
    packages=sorted(
        {
            *find_packages(include=["tbdprof", "tbdprof.*"]),
            *(package for folder in MAPPED for package in mapped_packages(folder)),
        }
    ),
    package_dir={f"tbdprof.{folder}": folder for folder in MAPPED},
    ext_modules=[EVENTS],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
    package_data={
        "tbdprof": ["py.typed"],
        "tbdprof.launch": ["startup/*.py"],
        "tbdprof.report.page": ["templates/*"],
        "tbdprof.hooks.on_mxnet.native": ["*.[ch]"],
    },
)
