"""`tbdprof run … --exact`: one more process of the same request has one step counted by Nsight Compute.

It comes after the ordinary run, whose recording gets the window "counted" beside its own; where nothing can be counted
the recording stays as it is, with the reason. The module itself, `python -m tbdprof.launch.counted_step REQUEST`, is
that process: it trains as the run did, without any profiler, and marks one step after its warm-up.
"""

import dataclasses
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
from tbdprof.facts.writing import write_anew
from tbdprof.hooks import load as load_hook
from tbdprof.launch.prepared import prepared
from tbdprof.launch.request import RunRequest
from tbdprof.loop.plan import NO_STEPS, Progress, silent

WARMUP_STEPS = 5  # algorithms are chosen, and gradients and the optimizer's state are there

Count = Callable[..., ncu.Counted]


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
    request: RunRequest,
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
        try:
            write_anew(recording, path)
        except UsageError as error:
            recording.missing["file"] = f"writing the counted step failed, the file is without it: {error}"
    return recording


def _counted(run: Run, request: RunRequest, count: Count, tool: Path | None) -> ncu.Counted:
    if not run.device.startswith("cuda"):
        raise UnavailableError("the run was on the CPU, and Nsight Compute counts what a GPU does")
    if tool is None:
        raise UnavailableError(ncu.ABSENT)
    if nvidia.counters().readable is False:
        raise UnavailableError(f"the performance counters cannot be read: {nvidia.counters().reason}")
    capability = cuda_driver.limits(cuda_driver.index_of(run.device)).capability
    wanted = ncu.metrics(capability, run.precision or "fp32")
    child = [sys.executable, "-m", "tbdprof.launch.counted_step", request_of(run, request).to_json()]
    return count(child, wanted, tool=tool)


def request_of(run: Run, request: RunRequest) -> RunRequest:
    """Return the request that has a run's steps taken again, where and as large as they turned out to be."""
    return dataclasses.replace(request, device=run.device, batch_size=run.batch_size)


def run_counted(request: RunRequest, cuda: Any = None) -> None:
    """Train, and have one step profiled by whatever this process runs under; `cuda` stands in for the driver's library.

    Raises as `suite_run.run` does.
    """
    config = request.config()
    with prepared(request.framework, request.setting()) as hook:
        workload = suite.build(request.model, request.framework, config)
        for _ in range(WARMUP_STEPS):
            workload.step()
        hook.synchronize()
        with ncu.switched_on(cuda_driver.index_of(request.device), cuda):
            workload.step()
            hook.synchronize()


def _append(recording: Recording, tables: Tables) -> None:
    recording.windows.append(Window(len(recording.windows), COUNTED, "complete", dict(tables)))


def main(arguments: Sequence[str]) -> int:
    """Run the step that the only argument tells of as JSON; a problem is one line on stderr."""
    try:
        run_counted(RunRequest.from_json(arguments[0]))
    except TbdprofError as error:
        sys.stderr.write(f"tbdprof: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
