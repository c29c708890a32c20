"""The facts that a recording keeps of MXNet's models, trainers and process."""

import os
import platform
import re
from collections.abc import Callable, Sequence

import mxnet as mx
import numpy as np
from mxnet.gluon import Parameter as GluonParameter

from tbdprof.collect import host
from tbdprof.collect.gpu import cuda_driver
from tbdprof.collect.gpu.cuda_driver import Limits
from tbdprof.errors import UnavailableError, UsageError
from tbdprof.facts.records import Optimizer, Parameter
from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.on_mxnet.watch import owners

_KINDS = {"SGD": "sgd", "Adam": "adam", "RMSProp": "rmsprop"}
# MXNet's wheels hold machine code up to this compute capability, and no PTX that a driver could translate.
_LAST_CAPABILITY = (8, 9)


def choose_device(wanted: str, limits: Callable[[int], Limits] = cuda_driver.limits) -> str:
    """Return "cpu" or "cuda:N" for auto, cpu, cuda or cuda:N; `limits` returns a device's properties, if known."""
    count = mx.context.num_gpus()
    if wanted == "cpu" or (wanted == "auto" and not count):
        return "cpu"
    match = re.fullmatch(r"auto|cuda(?::(\d+))?", wanted)
    if match is None:
        raise UsageError(f"unknown device {wanted!r}: choose auto, cpu, cuda or cuda:N")
    if not count:
        raise UnavailableError("MXNet sees no CUDA device: choose --device cpu")
    number = int(match[1] or 0)
    if number >= count:
        raise UnavailableError(f"MXNet sees no device {wanted}: the last one is cuda:{count - 1}")
    capability = _capability(number, limits)
    if tuple(int(part) for part in capability.split(".")) > _LAST_CAPABILITY:
        raise UnavailableError(
            f"MXNet's wheels hold no code for this GPU (compute capability {capability}): choose --device cpu"
        )
    return f"cuda:{number}"


def device_of(watched: owners.Watched) -> str | None:
    """Return the device of the watched parameters, or None if there are none."""
    rows = (layout.storage(array) for _, p in watched.parameters() for array in owners.data(p))
    return next((layout.device_text(storage[0]) for storage in rows if storage is not None), None)


def device_name(device: str) -> str:
    """Return the name that the device reports, or "" if it is not known."""
    if device == "cpu":
        return host.processor_name() or platform.processor()
    try:
        return cuda_driver.limits(cuda_driver.index_of(device)).name
    except UnavailableError:
        return ""


def threads() -> int:
    """Return how many threads an operator may use: as set in the environment, else MXNet's choice, half the cores."""
    asked = os.environ.get("MXNET_OMP_MAX_THREADS") or os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    return max(1, len(os.sched_getaffinity(0)) // 2)


def parameter_list(watched: owners.Watched) -> list[Parameter]:
    """Return weights and buffers of known shape, each storage once."""
    rows: dict[object, Parameter] = {}
    for name, parameter in watched.parameters():
        listed = owners.data(parameter)
        if listed:
            rows.setdefault(layout.storage(listed[0]) or id(parameter), _parameter(name, parameter, listed[0].shape))
    return list(rows.values())


def optimizer_list(watched: owners.Watched) -> list[Optimizer]:
    """Return the trainers' optimizers, each with the parameters that it updates."""
    names = {id(parameter): name for name, parameter in watched.parameters()}
    rows = []
    for trainer in watched.trainers():
        kind = type(trainer.optimizer).__name__
        updated = (p for p in owners.updated(trainer) if p.grad_req != "null")
        rows.append(
            Optimizer(
                _KINDS.get(kind, kind.lower()), tuple(names[id(p)] for p in updated), _settings(kind, trainer.optimizer)
            )
        )
    return rows


def _capability(number: int, limits: Callable[[int], Limits]) -> str:
    """Return a device's compute capability, or "0.0" if it is not known."""
    try:
        return limits(number).capability
    except UnavailableError:
        return "0.0"


def _parameter(name: str, parameter: GluonParameter, shape: Sequence[int]) -> Parameter:
    return Parameter(
        name,
        tuple(shape),
        np.dtype(parameter.dtype).itemsize,
        trainable=parameter.grad_req != "null",
        is_buffer=owners.is_buffer(parameter),
    )


def _settings(kind: str, optimizer: mx.optimizer.Optimizer) -> dict[str, float]:
    """Return the settings that decide the size of an optimizer's state; step counters are not in MXNet's allocator."""
    if kind == "SGD":
        return {"momentum": float(optimizer.momentum), "scalar_bytes": 0.0}
    if kind == "RMSProp":
        # The centered variant always keeps a momentum.
        return {
            "centered": float(optimizer.centered),
            "momentum": float(optimizer.centered),
            "scalar_bytes": 0.0,
        }
    return {"scalar_bytes": 0.0}
