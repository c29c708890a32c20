"""Import MXNet; if that fails, say which command to type."""

import importlib

from tbdprof.errors import UnavailableError
from tbdprof.hooks import about
from tbdprof.hooks.on_mxnet import numpy_names

_SYSTEM_LIBRARIES = ("libgomp", "libquadmath")
_CUDA_LIBRARIES = ("libcud", "libcublas", "libcufft", "libcurand", "libcusolver", "libnccl", "libnvrtc")


def import_mxnet() -> None:
    """Import MXNet; raise UnavailableError if that is not possible."""
    try:
        with numpy_names.given_back():
            importlib.import_module("mxnet")
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        raise UnavailableError(why_not(error)) from error


def why_not(error: Exception) -> str:
    """Return one line that says what to do about a failed import."""
    install = about("mxnet").install("mxnet")
    if isinstance(error, ModuleNotFoundError) and error.name == "mxnet":
        return f"mxnet is not installed: {install}"
    text = " ".join(str(error).split())
    if any(name in text for name in _SYSTEM_LIBRARIES):
        return f"MXNet lacks a library ({text}): apt-get install -y libgomp1 libquadmath0"
    if any(name in text for name in _CUDA_LIBRARIES):
        return f"this build of MXNet is for CUDA, whose libraries are not here ({text}): {install}"
    return f"MXNet cannot be imported: {text}"
