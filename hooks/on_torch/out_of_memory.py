"""Recognize the messages in which torch, CUDA and the C++ library report that memory is exhausted."""

import re

import torch

_OUT_OF_MEMORY = re.compile(
    r"tried to allocate \S+( \S*B)?|can't allocate memory|bad_alloc"
    r"|CUDA error: out of memory|CU\w+_STATUS_ALLOC_FAILED",  # requests of the driver or a library
    re.I,
)


def out_of_memory(error: BaseException) -> str | None:
    """Return the message about the failed request if the error means out of memory."""
    text = " ".join(str(error).split())
    if isinstance(error, torch.OutOfMemoryError):
        return text
    if isinstance(error, RuntimeError | MemoryError) and _OUT_OF_MEMORY.search(text):
        return text
    return None
