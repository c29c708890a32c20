"""Torch's devices: their names, and what is asked of CUDA where it is in use."""

import gc

import torch


def device_text(device: torch.device) -> str:
    """Return "cpu" or "cuda:0"."""
    if device.type == "cpu":
        return "cpu"
    return f"{device.type}:{device.index if device.index is not None and device.index >= 0 else 0}"


def cuda_is_on() -> bool:
    """Return whether CUDA is in use; asking anything more would begin to use it."""
    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def synchronize(device: str) -> None:
    """Wait for the device; the CPU's operators return when they are done."""
    if device != "cpu" and cuda_is_on():
        torch.cuda.synchronize(device)


def peak_bytes(device: str) -> int | None:
    """Return the CUDA allocator's peak over the whole run; None: nothing counts it."""
    if device == "cpu" or not cuda_is_on():
        return None
    return torch.cuda.max_memory_allocated(device)


def release_workspaces() -> None:
    """Have cuBLAS ask anew for the workspaces it keeps: a window then shows which operator did."""
    if cuda_is_on():
        # Builds without CUDA do not have it.
        from torch._C import _cuda_clearCublasWorkspaces

        torch.cuda.synchronize()
        _cuda_clearCublasWorkspaces()


def give_back_memory() -> str | None:
    """Let go of what the allocator keeps and nothing uses, for other processes; return why not where it cannot."""
    gc.collect()
    try:
        if cuda_is_on():
            torch.cuda.empty_cache()
    except RuntimeError as error:  # the device is beyond being asked
        return str(error).partition("\n")[0]
    return None
