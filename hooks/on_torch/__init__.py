"""PyTorch: the facts that need no import of torch, and the hook."""

from typing import TYPE_CHECKING

from tbdprof.hooks.about import About

if TYPE_CHECKING:
    from tbdprof.hooks.on_torch.facade import TorchHook

ABOUT = About(
    title="PyTorch",
    probe="import torch; print(torch.__version__, torch.cuda.device_count())",
    records_gpu=(
        "from torch import profiler; "
        "can = profiler.ProfilerActivity.CUDA in profiler.supported_activities(); "
        "print('' if can else 'this build records no activity of CUDA')"
    ),
    context=f"{__name__}.context",
)


def hook() -> "TorchHook":
    """Return a new hook; torch is not imported yet."""
    from tbdprof.hooks.on_torch.facade import TorchHook

    return TorchHook()
