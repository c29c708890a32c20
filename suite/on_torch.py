"""Where a model of the suite lies in PyTorch, and in which data type."""

import torch

from tbdprof.suite.workload import Config


def device_of(config: Config) -> torch.device:
    """Return the device that was asked for; "auto" is a GPU where there is one."""
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(config.device)


def dtype_of(config: Config) -> torch.dtype:
    """Return the data type of weights; bf16 is autocast's and tf32 the GPU's, over weights in float32."""
    return torch.float64 if config.precision == "fp64" else torch.float32
