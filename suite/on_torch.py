"""The device and the data type of a suite model in PyTorch."""

import torch
from torch import Tensor

from tbdprof.suite.workload import Config


def device_of(config: Config) -> torch.device:
    """Return the requested device; "auto" means a GPU if there is one."""
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(config.device)


def dtype_of(config: Config) -> torch.dtype:
    """Return the data type of weights: float32 for bf16 (set by autocast) and for tf32 (set on the GPU)."""
    return torch.float64 if config.precision == "fp64" else torch.float32


def autocast(config: Config) -> torch.autocast:
    """Return the autocast context, which is active only for runs in bf16."""
    return torch.autocast(device_of(config).type, torch.bfloat16, enabled=config.precision == "bf16")


def at_least_float32(scores: Tensor) -> Tensor:
    """Return scores in a data type that numpy supports."""
    return scores.float() if scores.dtype == torch.bfloat16 else scores
