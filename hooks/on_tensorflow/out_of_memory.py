"""Which of TensorFlow's errors mean that there was no memory left, and the sentence that says so.

Seen in TensorFlow 2.21: an operator in a function has the sentence below "Graph execution error:" and where the
operator was made; in eager mode it stands between names of TensorFlow's own; and where a copy to a GPU finds no room
for what it copies, no error of memory is raised, but another one.
"""

import re
import sys

_NO_ROOM = re.compile(r"OOM when|out of memory|failed to allocate|trying to allocate", re.I)
_NOT_COPIED = "Dst tensor is not initialized"
_AROUND = re.compile(r"^\{\{.*?\}\} |\s*\[Op:\S+\].*$")


def said(error: BaseException) -> str | None:
    """Return TensorFlow's sentence about what it could not allocate, None where an error is about something else."""
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
