"""What a recording tells of a training, and a digest of the weights that it ended with."""

import hashlib
from typing import Any

import numpy as np


def digest(model: Any) -> str:
    """Return a digest of a torch model's parameters and buffers."""
    return digest_of({name: each.detach().numpy() for name, each in model.state_dict().items()})


def digest_of(numbers: dict[str, np.ndarray]) -> str:
    """Return a digest of named arrays."""
    sums = hashlib.sha256()
    for name in sorted(numbers):
        sums.update(name.encode())
        sums.update(np.ascontiguousarray(numbers[name]).tobytes())
    return sums.hexdigest()


def told(profiler: Any) -> dict[str, Any]:
    """Return what a profiler's recording says; nothing without one."""
    if profiler is None:
        return {}
    summary, run = profiler.summary, profiler.recording.run
    return {
        "figures": summary.figures(),
        "windows": [(each.name, len(each.table("step"))) for each in profiler.recording.windows],
        "complete": run.complete,
        "ended_by": run.ended_by,
        "violations": [] if summary.memory is None else list(summary.memory.violations),
        "missing": summary.missing,
        "report": str(profiler),
    }
