"""Torch's devices: their names, and queries to CUDA if it is in use."""

import gc

import torch


def device_text(device: torch.device) -> str:
    """Return "cpu" or "cuda:0"."""
    if device.type == "cpu":
        return "cpu"
    return f"{device.type}:{device.index if device.index is not None and device.index >= 0 else 0}"


def cuda_is_on() -> bool:
    """Return whether CUDA is in use; any further query would initialize it."""
    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def synchronize(device: str) -> None:
    """Wait for a GPU; the CPU's operators return when they are done."""
    if device != "cpu" and cuda_is_on():
        torch.cuda.synchronize(device)


def peak_bytes(device: str) -> int | None:
    """Return the CUDA allocator's peak over the whole run, or None if nothing counts it."""
    if device == "cpu" or not cuda_is_on():
        return None
    return torch.cuda.max_memory_allocated(device)


def release_workspaces() -> None:
    """Free cuBLAS's workspaces: it allocates them again, and a window then shows the operator that did so."""
    if cuda_is_on():
        # Builds without CUDA do not have it.
        from torch._C import _cuda_clearCublasWorkspaces

        torch.cuda.synchronize()
        _cuda_clearCublasWorkspaces()


def give_back_memory() -> str | None:
    """Release the memory that the allocator keeps unused, for other processes; return why not if it cannot."""
    gc.collect()
    try:
        if cuda_is_on():
            torch.cuda.empty_cache()
    except RuntimeError as error:  # the device no longer answers
        return str(error).partition("\n")[0]
    return None
