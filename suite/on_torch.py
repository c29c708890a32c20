"""The device, the data type and the switches of a suite model in PyTorch."""

import os
import shutil
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tbdprof.errors import UnavailableError
from tbdprof.suite.switches import CHANNELS_LAST, CHECKPOINTING, COMPILE, FUSED_OPTIMIZER, is_on
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


def switch(model: nn.Module, config: Config, blocks: tuple[type[nn.Module], ...] = ()) -> None:
    """Change a new model on its device as the switches say; `blocks` are the modules whose maps are computed again.

    Raise UnavailableError if it is to be compiled, and there is no compiler.
    """
    if is_on(config, CHANNELS_LAST):
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if is_on(config, CHECKPOINTING):
        _checkpoint(model, blocks)
    if is_on(config, COMPILE):
        _check_compiler(config)
        model.compile()


def _checkpoint(module: nn.Module, blocks: tuple[type[nn.Module], ...]) -> None:
    """Compute the maps within each of the outermost blocks again in the backward pass."""
    for child in module.children():
        if isinstance(child, blocks):
            child.forward = partial(checkpoint, child.forward, use_reentrant=False)
        else:
            _checkpoint(child, blocks)


def optimizer_settings(config: Config) -> dict[str, bool]:
    """Return the arguments that the switches add to an optimizer's."""
    return {"fused": True} if is_on(config, FUSED_OPTIMIZER) else {}


def _check_compiler(config: Config) -> None:
    """Raise UnavailableError if the compiler that torch.compile runs is not there."""
    on_cpu = device_of(config).type == "cpu"
    variable, names = ("CXX", ("g++",)) if on_cpu else ("CC", ("gcc", "clang"))
    typed = os.environ.get(variable)
    if not any(map(shutil.which, (typed,) if typed else names)):
        needed = f"{typed} ({variable}), which is not there" if typed else " or ".join(names)
        raise UnavailableError(f"--compile: torch.compile runs {needed}: install {names[0]}, or set {variable}")
