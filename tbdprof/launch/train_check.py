"""Show that a model of the suite learns: train it on small generated data, and judge it on held-out data.

Nothing is profiled: the framework is prepared as for a run, but no hook watches.
"""

import importlib
from dataclasses import replace
from importlib.util import find_spec

from tbdprof import suite
from tbdprof.errors import UsageError
from tbdprof.launch.prepared import prepared
from tbdprof.launch.request import RunRequest
from tbdprof.loop.plan import Progress, silent
from tbdprof.suite.checks.learning import Check, Checked, Setting
from tbdprof.suite.workload import Config, Learner, Spec


def run(request: RunRequest, progress: Progress = silent) -> Checked:
    """Carry out a model's check; the schedule's steps are the training steps.

    Raise UsageError if the check cannot be run as requested, UnavailableError if the framework or device is not there,
    DeviceMemoryError if the training runs out of memory.
    """
    spec = suite.find(request.model)
    suite.check_framework(spec, request.framework)
    check = find(spec)
    request.config()  # checked before the framework is imported
    with prepared(request.framework, replace(request.setting(follows=False), precision=None)) as hook:
        facts = hook.facts()
        learned = check.run(
            lambda config: _build(spec, request.framework, config),
            Setting(device=facts.device, seed=request.seed, steps=request.schedule.steps),
            lambda step, of: progress("training", step, of),
        )
    return Checked(
        request.model, request.framework, facts.framework_version, facts.device, facts.threads, request.seed, learned
    )


def find(spec: Spec) -> Check:
    """Return a model's check, from its folder's `learning`; raise UsageError if it has none."""
    name = f"{suite.__name__}.{spec.name}.learning"
    if find_spec(name) is None:
        raise UsageError(f"{spec.name} has no check of its training: suite/{spec.name}/learning.py is to hold a CHECK")
    check: Check = importlib.import_module(name).CHECK
    return check


def _build(spec: Spec, framework: str, config: Config) -> Learner:
    workload: Learner = suite.build(spec.name, framework, config)  # type: ignore[assignment]
    return workload
