"""The models and optimizers that a user hands over, without what libraries wrapped around them.

Accelerate, Lightning, DeepSpeed, torch.compile and others wrap them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from tbdprof.hooks.on_torch.watch.watch import Watch

_OF_MODELS = ("_orig_mod", "module")
_OF_OPTIMIZERS = ("optimizer",)


def add_all(watch: Watch, models: Sequence[object], optimizers: Sequence[object]) -> list[str]:
    """Watch what can be watched and find what is not given; return the type names of what cannot be watched."""
    strange = []
    for each in models:
        model = _model_in(each)
        if model is not None:
            watch.watched.add_model(model)
        else:
            strange.append(type(each).__name__)
    for each in optimizers:
        of_keras: Any = watch.keras.of(each)
        found = _optimizers_in(each) if of_keras is None else [of_keras]
        if not found:
            strange.append(type(each).__name__)
        for optimizer in found:
            watch.watched.add_optimizer(optimizer)
    if not strange:
        watch.find(models=not watch.watched.models(), optimizers=not watch.watched.optimizers())
    return strange


def _model_in(thing: object) -> torch.nn.Module | None:
    """Return a module, the module inside a wrapper that is none itself, or None."""
    for each in _with_inner(thing, _OF_MODELS):
        if isinstance(each, torch.nn.Module):
            return each
    return None


def _optimizers_in(thing: object) -> list[torch.optim.Optimizer]:
    """Return an optimizer and those it wraps that keep a state of their own; none if there is none."""
    found: dict[int, torch.optim.Optimizer] = {}
    for each in _with_inner(thing, _OF_OPTIMIZERS):
        if isinstance(each, torch.optim.Optimizer) and _has_groups(each):
            state = vars(each).get("state")  # a wrapper has none, or that of what it wraps
            if isinstance(state, Mapping):
                found[id(state)] = each
    return list(found.values())


def _with_inner(thing: object, names: tuple[str, ...]) -> Iterator[object]:
    """Yield a thing and what lies inside it, from the outside in."""
    seen: list[object] = []
    while thing is not None and not any(thing is each for each in seen):
        seen.append(thing)
        yield thing
        thing = next((inner for name in names if (inner := _attribute(thing, name)) is not None), None)


def _attribute(thing: object, name: str) -> object:
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a property of the user's class may raise anything
        return None


def _has_groups(optimizer: torch.optim.Optimizer) -> bool:
    groups = _attribute(optimizer, "param_groups")
    return isinstance(groups, list) and all(isinstance(group, dict) and "params" in group for group in groups)
