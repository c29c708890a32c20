"""Makes the libraries that TensorFlow looks for on a machine with a GPU, out of one that only pretends."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCES = Path(__file__).parent
ROOT = SOURCES.parents[2]
NAMES = (
    "libcuda.so.1",
    "libcudart.so.12",
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcudnn.so.9",
    "libcufft.so.11",
    "libcusolver.so.11",
    "libcusparse.so.12",
    "libcupti.so.12",
    "libnvidia-ml.so.1",
)
CARD_BYTES = 4 << 30
CONTEXT_BYTES = 512 << 20  # as driver.c has it
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-pthread")


def compiler() -> str | None:
    """Return the system's C compiler, None where there is none."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def make(folder: Path, command: str) -> Path:
    """Compile the stand-in into a folder, under each name; return the folder."""
    library = folder / "stand_in.so"
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    subprocess.run([command, *FLAGS, *sources, "-o", str(library)], check=True, timeout=60)
    for name in NAMES:
        (folder / name).symlink_to(library.name)
    return folder


def environment(folder: Path, card_bytes: int = CARD_BYTES) -> Mapping[str, str]:
    """Return the environment of a process that is to see the card, with so much memory."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{ROOT / 'tests' / 'support'}",
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "XLA_FLAGS": "--xla_gpu_enable_command_buffer=",  # none: CUDA graphs are not stood in for
        "STAND_IN_CARD_BYTES": str(card_bytes),
    }
