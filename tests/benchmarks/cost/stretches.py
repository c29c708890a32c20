"""Time some steps."""

import time
from collections.abc import Callable

from cost.figures import Stretch


def timed(step: Callable[[], object], steps: int, synchronize: Callable[[], object]) -> Stretch:
    """Return the times of some steps, from a moment when nothing computes until the next one."""
    synchronize()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    synchronize()
    return Stretch((time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps)
