"""The facts that a recording keeps of torch's devices, models and optimizers."""

import platform
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from tbdprof.collect import host
from tbdprof.errors import UnavailableError, UsageError
from tbdprof.facts.batches import LEAST_WITH_A_REST
from tbdprof.facts.records import Optimizer, Parameter
from tbdprof.hooks.instances import instances_of
from tbdprof.hooks.keras_objects import OF_FIT, batch_size_of_fit
from tbdprof.hooks.naming import optimizer_kind
from tbdprof.hooks.on_torch.devices import device_text
from tbdprof.hooks.on_torch.watch.keras_optimizers import KerasOptimizer
from tbdprof.hooks.on_torch.watch.owners import dense_parts, local_part
from tbdprof.hooks.on_torch.watch.watched import Watched

_KINDS = {"SGD": "sgd", "Adam": "adam", "AdamW": "adamw", "RMSprop": "rmsprop"}
# What they keep for a parameter.
_SLOTS = {
    "sgd": {"momentum_buffer"},
    "adam": {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    "adamw": {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    "rmsprop": {"step", "square_avg", "momentum_buffer", "grad_avg"},
}
_WITH_COUNTER = ("adam", "adamw", "rmsprop")
_SETTINGS = ("momentum", "amsgrad", "centered")


def choose_device(wanted: str) -> str:
    """Return "cpu" or "cuda:N" for auto, cpu, cuda or cuda:N."""
    if wanted == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    if wanted == "cpu":
        return "cpu"
    match = re.fullmatch(r"cuda(?::(\d+))?", wanted)
    if match is None:
        raise UsageError(f"unknown device {wanted!r}: choose auto, cpu, cuda or cuda:N")
    number = int(match[1] or 0)
    if not torch.cuda.is_available():
        raise UnavailableError("torch sees no CUDA device: choose --device cpu")
    if number >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise UnavailableError(f"torch sees no device {wanted}: the last one is cuda:{last}")
    return f"cuda:{number}"


def device_name(device: str) -> str:
    """Return the name that the device reports."""
    if device != "cpu":
        return torch.cuda.get_device_name(device)
    return host.processor_name() or platform.processor()


def parameter_list(watched: Watched) -> list[Parameter]:
    """Return weights and buffers as facts; leave out a tensor that shares its data with an earlier one."""
    rows: dict[tuple[str, int], Parameter] = {}
    for is_buffer, named in ((False, watched.parameters()), (True, watched.buffers())):
        for name, tensor in named:
            local = local_part(tensor)
            parts = dense_parts(local)
            place = (device_text(local.device), parts[0].data_ptr() or id(tensor))
            rows.setdefault(
                place,
                Parameter(
                    name,
                    tuple(local.shape),
                    local.element_size(),
                    trainable=tensor.requires_grad and not is_buffer,
                    is_buffer=is_buffer,
                    held_bytes=None if parts[0] is local else sum(each.untyped_storage().nbytes() for each in parts),
                ),
            )
    return list(rows.values())


def whole_parameters(watched: Watched) -> int | None:
    """Return how many values all processes train together, or None if this process holds all of them."""
    trained = [tensor for _, tensor in watched.parameters() if tensor.requires_grad]
    whole, here = (sum(each.numel() for each in some) for some in (trained, map(local_part, trained)))
    return whole if whole != here else None


def batch_size(watched: Watched) -> tuple[int | None, str]:
    """Return the batch size of the `fit` or the loader that a loop goes through now, and which of them says so.

    It is None without one, where several differ, and where an epoch's last batch is smaller and epochs are short.
    """
    of_fit = batch_size_of_fit(watched.models(), LEAST_WITH_A_REST)
    if of_fit is not None:
        return of_fit, OF_FIT
    sizes = set(map(_batch_size, instances_of(_BaseDataLoaderIter)))
    return (sizes.pop() if len(sizes) == 1 else None), "the loader's batch size"


def _batch_size(iterator: Any) -> int | None:
    sampler: Any = getattr(iterator, "_index_sampler", None)
    own = vars(sampler) if hasattr(sampler, "__dict__") else {}
    size = own.get("batch_size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return None
    try:
        has_rest = not own.get("drop_last") and len(own["sampler"]) % size > 0
        return None if has_rest and len(sampler) < LEAST_WITH_A_REST else size
    except Exception:  # noqa: BLE001 - a sampler without a length, or of the user's own, which may raise anything
        return size


def optimizer_list(watched: Watched) -> list[Optimizer]:
    """Return the optimizers as facts: one for each distinct set of settings among an optimizer's parameter groups."""
    names = {id(parameter): name for name, parameter in watched.parameters()}
    rows: list[Optimizer] = []
    for optimizer in watched.optimizers():
        kind = _kind(optimizer)
        by_settings: dict[tuple[tuple[str, float], ...], list[str]] = {}
        for group in optimizer.param_groups:
            trained = [names[id(p)] for p in group["params"] if p.requires_grad]
            settings = tuple(_settings(kind, group, optimizer).items())
            by_settings.setdefault(settings, []).extend(trained)
        rows += [Optimizer(kind, tuple(n), dict(s)) for s, n in by_settings.items()]
    return rows


def _kind(optimizer: torch.optim.Optimizer | KerasOptimizer) -> str:
    """Return the optimizer's kind; one in whose state a wrapper keeps something, too, is a kind of its own."""
    if isinstance(optimizer, KerasOptimizer):
        return optimizer_kind(optimizer.made, _KINDS, ("keras",))
    kind = optimizer_kind(type(optimizer), _KINDS, ("torch",))
    if kind not in _SLOTS:
        return kind
    slots = {str(slot) for kept in list(optimizer.state.values()) if isinstance(kept, Mapping) for slot in kept}
    added = sorted(slots - _SLOTS[kind])
    return f"{kind} with {', '.join(added)}" if added else kind


def _settings(kind: str, group: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, float]:
    settings = {name: float(value) for name in _SETTINGS if isinstance(value := group.get(name), int | float)}
    if kind in _WITH_COUNTER and not isinstance(optimizer, KerasOptimizer):  # Keras has one counter for all
        counters = [s["step"] for s in optimizer.state.values() if "step" in s]
        if not _counts_on_its_device(group, counters):
            return settings  # the counter takes no memory of the device
        counter = counters[0] if counters else torch.get_default_dtype()
        if isinstance(counter, torch.dtype):
            # The optimizer makes its counter in float64 only where that is the default.
            settings["scalar_bytes"] = 8.0 if counter == torch.float64 else 4.0
        elif isinstance(counter, torch.Tensor):
            settings["scalar_bytes"] = float(counter.element_size())
    return settings


def _counts_on_its_device(group: Mapping[str, Any], counters: Sequence[object]) -> bool:
    """Return whether the step counters are on the parameters' device: on a GPU only those of some optimizers are."""
    places = {parameter.device for parameter in group["params"]}
    if counters:
        return not isinstance(counters[0], torch.Tensor) or counters[0].device in places
    on_host = all(place.type == "cpu" for place in places)
    return on_host or bool(group.get("fused") or group.get("capturable"))
