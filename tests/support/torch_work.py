"""What a step of a model computes in torch, and what torch keeps of it meanwhile."""

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from tbdprof.analysis.kernels.flops import count
from tbdprof.facts.records import Strings
from tbdprof.facts.work import parse
from tbdprof.hooks.on_torch import hook


def counted_flops(workload: Any, steps: int = 1) -> int:
    """Return the FLOPs that the profiler counts in some steps."""
    torch_hook, strings = hook(), Strings()
    torch_hook.attach()
    torch_hook.watch(listed(workload.model), listed(workload.optimizer))
    try:
        torch_hook.start("kernels")
        for _ in range(steps):
            workload.step()
            torch_hook.mark_step()
        torch_hook.stop()
        spans = torch_hook.drain(strings).tables["span"]
    finally:
        torch_hook.close()
    parents = {int(row["id"]): row for row in spans}
    counted = 0
    for row in spans[spans["work"] >= 0]:
        around = row["parent"]
        while around >= 0 and parents[int(around)]["work"] < 0:
            around = parents[int(around)]["parent"]
        flops = count(parse(strings[row["work"]])) if around < 0 else None
        counted += flops.model if flops else 0
    return counted


@dataclass(eq=False)
class Kept:
    tensor: torch.Tensor


def saved_by_torch(loss_of: Callable[[], torch.Tensor], own: Iterable[torch.Tensor]) -> int:
    """Return how many bytes torch keeps for the backward pass once a loss is known, beside a model's own."""
    weights = {each.untyped_storage().data_ptr() for each in own}
    alive: weakref.WeakSet[Kept] = weakref.WeakSet()

    def pack(tensor: torch.Tensor) -> Kept:
        kept = Kept(tensor.detach())
        alive.add(kept)
        return kept

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
        loss = loss_of()
    storages = {storage.data_ptr(): storage.nbytes() for storage in (kept.tensor.untyped_storage() for kept in alive)}

    assert loss.ndim == 0
    return sum(size for at, size in storages.items() if at not in weights)


def listed(one_or_more: Any) -> list[Any]:
    """Return models or optimizers as a list."""
    return list(one_or_more) if isinstance(one_or_more, list | tuple) else [one_or_more]
