"""Whether products of float32 may be computed in TF32 on a GPU: MXNet has no switch, its libraries ask the environment.

It may be imported while MXNet is not.
"""

import os

_OVERRIDE = "NVIDIA_TF32_OVERRIDE"
_FLAGS = (_OVERRIDE, "MXNET_CUDA_ALLOW_TENSOR_CORE", "MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION")


def variables(precision: str | None) -> dict[str, str]:
    """Return what to set in the environment for a precision; cuBLAS and cuDNN read it where they begin."""
    return {_OVERRIDE: "0"} if precision == "fp32" else {}


def flags(device: str) -> dict[str, str]:
    """Return what decides how a GPU multiplies numbers of 32 bits: MXNet asks its libraries for TF32 where they may."""
    return {} if device == "cpu" else {name: os.environ.get(name, "not set") for name in _FLAGS}
