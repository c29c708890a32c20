"""Whether a GPU may compute float32 matmuls and convolutions in TF32: for MXNet, environment variables decide.

MXNet has no switch of its own; its libraries read the environment. This module does not need MXNet to be imported.
"""

import os

_OVERRIDE = "NVIDIA_TF32_OVERRIDE"
_FLAGS = (_OVERRIDE, "MXNET_CUDA_ALLOW_TENSOR_CORE", "MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION")


def variables(precision: str | None) -> dict[str, str]:
    """Return the environment variables to set for a precision; cuBLAS and cuDNN read them when they start."""
    return {_OVERRIDE: "0"} if precision == "fp32" else {}


def flags(device: str) -> dict[str, str]:
    """Return the variables that decide a GPU's float32 precision: MXNet requests TF32 wherever they allow it."""
    return {} if device == "cpu" else {name: os.environ.get(name, "not set") for name in _FLAGS}
