"""Recognize the errors in which TensorFlow reports that memory is exhausted.

Seen in TensorFlow 2.21: for an operator in a function, the message follows "Graph execution error:" and the place where
the operator was created. In eager mode it stands between names of TensorFlow's own. If a copy to a GPU finds no memory
for its result, TensorFlow raises an error of another kind.
"""

import re
import sys

_NO_ROOM = re.compile(r"OOM when|out of memory|failed to allocate|trying to allocate", re.I)
_NOT_COPIED = "Dst tensor is not initialized"
_AROUND = re.compile(r"^\{\{.*?\}\} |\s*\[Op:\S+\].*$")


def said(error: BaseException) -> str | None:
    """Return TensorFlow's message about a failed allocation, or None if the error is about something else."""
    if isinstance(error, MemoryError):
        return str(error) or "the host's memory"
    tf = sys.modules.get("tensorflow")
    if tf is None:
        return None
    lines = str(getattr(error, "message", error)).strip().splitlines()
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return _AROUND.sub("", next(filter(_NO_ROOM.search, lines), next(iter(lines), "")))
    if isinstance(error, tf.errors.InternalError | RuntimeError):
        return next((_AROUND.sub("", line) for line in lines if _NOT_COPIED in line), None)
    return None
