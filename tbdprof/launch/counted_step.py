"""`tbdprof run … --exact`: one more process of the same request has one step counted by Nsight Compute.

It comes after the ordinary run, whose recording gets the window "counted" beside its own; where nothing can be counted
the recording stays as it is, with the reason. The module itself, `python -m tbdprof.launch.counted_step REQUEST`, is
that process: it trains as the run did, without any profiler, and marks one step after its warm-up.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tbdprof import suite
from tbdprof.collect import ncu
from tbdprof.collect.gpu import cuda_driver, nvidia
from tbdprof.errors import TbdprofError, UnavailableError, UsageError
from tbdprof.facts.reading import load
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Run, Tables
from tbdprof.facts.windows import COUNTED
from tbdprof.facts.writing import save
from tbdprof.hooks import Setting
from tbdprof.hooks import load as load_hook
from tbdprof.launch import suite_run
from tbdprof.loop.plan import NO_STEPS, Progress, silent

WARMUP_STEPS = 5  # algorithms are chosen, and gradients and the optimizer's state are there

Count = Callable[..., ncu.Counted]


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """Whose step to count: what a request asked for and its run turned out to be."""

    model: str
    framework: str
    device: str
    batch_size: int | None
    precision: str
    threads: int
    seed: int
    options: dict[str, Any]
    data: str | None


def refuse(device: str, cuda: Any = None) -> None:
    """Raise UsageError where a device has no counters; `cuda` stands in for the driver's library."""
    if device == "cpu":
        raise UsageError(
            "--exact counts what a GPU does, and this run is on the CPU: leave it out, or add --device cuda"
        )
    if device == "auto":
        try:
            cuda_driver.limits(0, cuda)
        except UnavailableError as error:
            raise UsageError(f"--exact counts what a GPU does, and there is none: {error}") from error


def add(
    recording: Recording,
    request: suite_run.Request,
    path: Path,
    progress: Progress = silent,
    *,
    count: Count = ncu.count,
    tool: Path | None = None,
) -> Recording:
    """Return a finished run's recording with a counted step, its file written anew; or with the reason why not."""
    progress("count under Nsight Compute", 0, NO_STEPS)
    keeps = load_hook(request.framework).give_back_memory()  # the step is run beside what this process still has
    if recording.missing.get("file") is None:
        recording = load(path)  # with ids of texts as they are in the file
    try:
        counted = _counted(recording.run, request, count, tool or ncu.find())
        tables = ncu.tables(counted, recording.strings, recording.run.device)
    except UnavailableError as error:
        recording.missing[COUNTED] = str(error) if keeps is None else f"{error} ({keeps})"
    else:
        _append(recording, tables)
        if counted.remarks:
            recording.missing["counted in part"] = "; ".join(counted.remarks)
    if recording.missing.get("file") is None:
        _replace(recording, path)
    return recording


def _counted(run: Run, request: suite_run.Request, count: Count, tool: Path | None) -> ncu.Counted:
    if not run.device.startswith("cuda"):
        raise UnavailableError("the run was on the CPU, and Nsight Compute counts what a GPU does")
    if tool is None:
        raise UnavailableError(ncu.ABSENT)
    if nvidia.counters().readable is False:
        raise UnavailableError(f"the performance counters cannot be read: {nvidia.counters().reason}")
    capability = cuda_driver.limits(cuda_driver.index_of(run.device)).capability
    wanted = ncu.metrics(capability, run.precision or "fp32")
    child = [sys.executable, "-m", "tbdprof.launch.counted_step", json.dumps(dataclasses.asdict(step_of(run, request)))]
    return count(child, wanted, tool=tool)


def step_of(run: Run, request: suite_run.Request) -> Step:
    """Return what to run again of a run."""
    return Step(
        model=request.model,
        framework=request.framework,
        device=run.device,
        batch_size=run.batch_size,
        precision=request.precision,
        threads=suite_run.threads(request.threads),
        seed=request.seed,
        options=dict(request.options),
        data=None if request.data is None else os.fspath(request.data.absolute()),
    )


def run_counted(step: Step, cuda: Any = None) -> None:
    """Train, and have one step profiled by whatever this process runs under; `cuda` stands in for the driver's library.

    Raises as `drive.run` does.
    """
    spec = suite.find(step.model)
    data = None if step.data is None else Path(step.data)
    setting = Setting(step.device, step.threads, step.precision, step.seed)
    with suite_run.prepared(step.framework, setting) as hook:
        config = suite.configure(
            spec,
            batch_size=step.batch_size,
            device=step.device,
            precision=step.precision,
            seed=step.seed,
            options=step.options,
            data=data,
        )
        workload = suite.build(spec.name, step.framework, config)
        for _ in range(WARMUP_STEPS):
            workload.step()
        hook.synchronize()
        with ncu.switched_on(cuda_driver.index_of(step.device), cuda):
            workload.step()
            hook.synchronize()


def _append(recording: Recording, tables: Tables) -> None:
    recording.windows.append(Window(len(recording.windows), COUNTED, "complete", dict(tables)))


def _replace(recording: Recording, path: Path) -> None:
    """Write a recording over its file at once: whoever reads meanwhile, or a crash, finds the one or the other."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save(recording, beside, force=True)
        beside.replace(path)
    except (OSError, UsageError) as error:
        recording.missing["file"] = f"writing the counted step failed, the file is without it: {error}"
    finally:
        beside.unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> int:
    """Run the step that the only argument tells of as JSON; a problem is one line on stderr."""
    try:
        run_counted(Step(**json.loads(arguments[0])))
    except TbdprofError as error:
        sys.stderr.write(f"tbdprof: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
