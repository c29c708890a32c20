"""What libraries wrap around models and optimizers: Accelerate, Lightning, DeepSpeed, torch.compile and others."""

from collections.abc import Iterator, Mapping

import torch

_OF_MODELS = ("_orig_mod", "module")
_OF_OPTIMIZERS = ("optimizer",)


def model_in(thing: object) -> torch.nn.Module | None:
    """Return a module, the module inside a wrapper that is none itself, or None."""
    for each in _with_inner(thing, _OF_MODELS):
        if isinstance(each, torch.nn.Module):
            return each
    return None


def optimizers_in(thing: object) -> list[torch.optim.Optimizer]:
    """Return an optimizer and those it wraps that keep a state of their own; none if there is none."""
    found: dict[int, torch.optim.Optimizer] = {}
    for each in _with_inner(thing, _OF_OPTIMIZERS):
        # A wrapper has no state, or a reference to the state of what it wraps.
        state = vars(each).get("state") if isinstance(each, torch.optim.Optimizer) else None
        if isinstance(state, Mapping) and _has_groups(each):
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
