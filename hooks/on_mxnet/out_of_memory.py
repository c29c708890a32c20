"""Which errors mean that there was no memory left in MXNet, and the sentence that says so."""

import re
import sys

_OUT_OF_MEMORY = re.compile(r"Failed to allocate|out of memory|bad_alloc", re.I)


def said(error: BaseException) -> str | None:
    """Return MXNet's sentence about what it could not allocate, None where an error is about something else."""
    if isinstance(error, MemoryError):
        return str(error) or "the host's memory"
    mx = sys.modules.get("mxnet")
    if mx is None or not isinstance(error, mx.base.MXNetError):
        return None
    return next((line for line in str(error).splitlines() if _OUT_OF_MEMORY.search(line)), None)
