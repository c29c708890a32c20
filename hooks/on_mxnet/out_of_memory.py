"""Recognize the errors in which MXNet reports that memory is exhausted."""

import re
import sys

_OUT_OF_MEMORY = re.compile(r"Failed to allocate|out of memory|bad_alloc", re.I)


def said(error: BaseException) -> str | None:
    """Return MXNet's message about a failed allocation, or None if the error is about something else."""
    if isinstance(error, MemoryError):
        return str(error) or "the host's memory"
    mx = sys.modules.get("mxnet")
    if mx is None or not isinstance(error, mx.base.MXNetError):
        return None
    return next((line for line in str(error).splitlines() if _OUT_OF_MEMORY.search(line)), None)
