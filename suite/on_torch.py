"""Where a model of the suite lies in PyTorch, and in which data type it computes."""

import torch
from torch import Tensor

from tbdprof.suite.workload import Config


def device_of(config: Config) -> torch.device:
    """Return the device that was asked for; "auto" is a GPU where there is one."""
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(config.device)


def dtype_of(config: Config) -> torch.dtype:
    """Return the data type of weights; bf16 is autocast's and tf32 the GPU's, over weights in float32."""
    return torch.float64 if config.precision == "fp64" else torch.float32


def autocast(config: Config) -> torch.autocast:
    """Return the context in which a run in bf16 computes in it."""
    return torch.autocast(device_of(config).type, torch.bfloat16, enabled=config.precision == "bf16")


def at_least_float32(scores: Tensor) -> Tensor:
    """Return scores in a type that numpy has."""
    return scores.float() if scores.dtype == torch.bfloat16 else scores
