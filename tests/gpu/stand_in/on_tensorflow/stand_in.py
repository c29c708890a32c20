"""Makes the libraries that TensorFlow looks for on a machine with a GPU."""

import platform
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from gpu.stand_in import library

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
CONTEXT_BYTES = 512 << 20


def why_not() -> str | None:
    """Return why nothing can be simulated here, None where it can."""
    if find_spec("tensorflow") is None:
        return "needs tensorflow"
    if platform.machine() != "x86_64" or sys.platform != "linux":
        return "TensorFlow is built with CUDA for Linux on x86-64"
    return library.why_not()


def make(folder: Path) -> Path:
    """Compile the stand-in into a folder, under each name; return the folder."""
    return library.compiled("tensorflow", folder / "stand_in.so", NAMES)


def environment(folder: Path) -> Mapping[str, str]:
    """Return the environment of a process that is to see the card."""
    return library.environment(
        folder,
        TF_CPP_MIN_LOG_LEVEL="3",
        XLA_FLAGS="--xla_gpu_enable_command_buffer=",  # none: CUDA graphs are not stood in for
        SIMULATED_MEMORY_BYTES=CARD_BYTES,
        SIMULATED_CONTEXT_BYTES=CONTEXT_BYTES,
    )
