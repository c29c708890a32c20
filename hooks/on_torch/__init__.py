"""PyTorch: the facts that need no import of torch, and the hook."""

import re
import sys
from typing import TYPE_CHECKING

from tbdprof.facts.ranks import Rank, rank_of
from tbdprof.hooks.about import About, FailureText

if TYPE_CHECKING:
    from tbdprof.hooks.on_torch.facade import TorchHook


def _rank() -> Rank | None:
    """Return the rank in the default process group, which this process keeps itself; torch is not imported for it."""
    group = sys.modules.get("torch.distributed")
    if group is None or not group.is_available() or not group.is_initialized():
        return None
    return rank_of(group.get_rank(), group.get_world_size())


ABOUT = About(
    title="PyTorch",
    probe="import torch; print(torch.__version__, torch.cuda.device_count())",
    no_step="no optimizer stepped, and no weight changed after a backward pass",
    records_gpu=(
        "from torch import profiler; "
        "can = profiler.ProfilerActivity.CUDA in profiler.supported_activities(); "
        "print('' if can else 'this build records no activity of CUDA')"
    ),
    failure_text=FailureText(
        asked=re.compile(r"tried to allocate (\d+(?:\.\d+)?) *(bytes|[KMGT]?i?B)?", re.I),
        device=re.compile(r"total capacity of (\d+(?:\.\d+)?) (\w+) of which (\d+(?:\.\d+)?) (\w+) is free", re.I),
        allocated=re.compile(r"of the allocated memory (\d+(?:\.\d+)?) (\w+) is allocated by PyTorch", re.I),
        of_host=re.compile(r"DefaultCPUAllocator"),
    ),
    context=f"{__name__}.context",
    rank=_rank,
)


def hook() -> "TorchHook":
    """Return a new hook; torch is not imported yet."""
    from tbdprof.hooks.on_torch.facade import TorchHook

    return TorchHook()
