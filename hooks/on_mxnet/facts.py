"""The facts that a recording keeps of MXNet's models, trainers and process."""

import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import mxnet as mx
import numpy as np

from tbdprof.collect import host
from tbdprof.collect.gpu import cuda_driver
from tbdprof.collect.gpu.cuda_driver import Limits
from tbdprof.errors import UnavailableError, UsageError
from tbdprof.facts.records import Optimizer, Parameter
from tbdprof.hooks.naming import optimizer_kind
from tbdprof.hooks.on_mxnet.memory.blocks import Stored
from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.on_mxnet.watch import owners, trainers
from tbdprof.hooks.on_mxnet.watch.held import Held

_CUDA = "cuda"
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
    """Return the first device of the watched parameters, or None if there are none; all of the host's are "cpu"."""
    first = next(iter(_devices(watched)), None)
    return first if first is None or first.startswith(_CUDA) else "cpu"


def devices(watched: owners.Watched, device: str, allocated: Iterable[int]) -> list[str]:
    """Return the devices whose memory is the run's: all of the host's, or the GPUs that hold parameters."""
    if device != "cpu":
        return sorted({device, *(each for each in _devices(watched) if each.startswith(_CUDA))})
    names = {layout.device_text(each) for each in allocated}
    return sorted({device, *(name for name in names if not name.startswith(_CUDA))})


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


def parameter_list(watched: owners.Watched, kept: Mapping[int, Stored] | None = None) -> list[Parameter]:
    """Return weights and buffers of known shape, each storage once; `kept` has the blocks that stores keep."""
    rows: dict[object, Parameter] = {}
    copies = owners.stored_copies(watched, kept or {})
    for name, each in watched.parameters():
        if each.arrays:
            row = _parameter(name, each, copies.get(each.key, 0))
            rows.setdefault(layout.storage(each.arrays[0]) or each.key, row)
    return list(rows.values())


def optimizer_list(watched: owners.Watched) -> list[Optimizer]:
    """Return the trainers' optimizers, each with the parameters that it updates."""
    named = watched.parameters()
    names, trained = {each.key: name for name, each in named}, {each.key for _, each in named if each.is_trained}
    rows = []
    for trainer in watched.trainers():
        updated = tuple(names[key] for key in trainers.keys(trainer) if key in trained)
        for optimizer in trainers.optimizers(trainer):
            kind = optimizer_kind(type(optimizer), _KINDS, ("mxnet",)).lower()
            rows.append(Optimizer(kind, updated, _settings(kind, optimizer)))
    return rows


def _capability(number: int, limits: Callable[[int], Limits]) -> str:
    """Return a device's compute capability, or "0.0" if it is not known."""
    try:
        return limits(number).capability
    except UnavailableError:
        return "0.0"


def _parameter(name: str, each: Held, copied_bytes: int) -> Parameter:
    first = each.arrays[0]
    return Parameter(
        name,
        tuple(first.shape),
        np.dtype(first.dtype).itemsize,
        trainable=each.is_trained,
        is_buffer=each.is_buffer,
        held_bytes=_held_bytes(each, copied_bytes),
    )


def _held_bytes(each: Held, copied_bytes: int) -> int | None:
    """Return what all of a parameter's arrays hold, or None for one dense array."""
    if len(each.arrays) == 1 and not copied_bytes and not layout.is_sparse(each.arrays[0]):
        return None
    return copied_bytes + sum(storage[2] for array in each.arrays for storage in layout.storages(array))


def _devices(watched: owners.Watched) -> Iterator[str]:
    rows = (layout.storage(array) for _, each in watched.parameters() for array in each.arrays)
    return (layout.device_text(storage[0]) for storage in rows if storage is not None)


def _settings(kind: str, optimizer: mx.optimizer.Optimizer) -> dict[str, float]:
    """Return the settings that decide the size of an optimizer's state; step counters are not in MXNet's allocator."""
    if kind == "sgd":
        return {"momentum": float(optimizer.momentum), "scalar_bytes": 0.0}
    if kind == "rmsprop":
        # The centered variant always keeps a momentum.
        return {
            "centered": float(optimizer.centered),
            "momentum": float(optimizer.centered),
            "scalar_bytes": 0.0,
        }
    return {"scalar_bytes": 0.0}
