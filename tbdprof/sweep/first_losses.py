"""The losses of a model's first training steps: what a setting does to the training.

The model is built anew and trained without a profiler, on the batches of a run. So two settings with the same seed can
be compared, however many steps their recordings needed.
"""

import math
from collections.abc import Iterable
from itertools import islice

from tbdprof import suite
from tbdprof.errors import TbdprofError, UsageError
from tbdprof.launch import train_check
from tbdprof.launch.prepared import prepared
from tbdprof.launch.request import RunRequest
from tbdprof.suite.workload import Learner


def losses(request: RunRequest, steps: int) -> tuple[float, ...]:
    """Return the loss before the first step and after each of the next ones: `steps` + 1 numbers.

    Each is that of the batch of its step. Raise UsageError if the model has no loss of a single step, TbdprofError if a
    loss is not finite.
    """
    check = train_check.find(suite.find(request.model))
    if check.batches is None:
        raise UsageError(f"{request.model} has no loss of a single step")
    with prepared(request.framework, request.setting()) as hook:
        config = request.config(hook.facts().device)
        learner: Learner = suite.build(request.model, request.framework, config)  # type: ignore[assignment]
        return finite(float(learner.train(batch)) for batch in islice(check.batches(config), steps + 1))


def finite(values: Iterable[float]) -> tuple[float, ...]:
    """Return losses; raise TbdprofError at the first one that is not finite."""
    found: list[float] = []
    for value in values:
        if not math.isfinite(value):
            raise TbdprofError(f"the loss after {len(found)} steps is {value}")
        found.append(value)
    return tuple(found)
