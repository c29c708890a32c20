"""`tbdprof run … --exact`: another process runs the same request, and Nsight Compute counts one of its steps.

It comes after the ordinary run, and adds the window "counted" to that run's recording. If nothing can be counted, the
recording gets the reason instead. `python -m tbdprof.launch.counted_step REQUEST` is that process: it trains as the run
did, without tbdprof's profiler, and switches the counting on for one step after its warm-up.
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
from tbdprof.facts.file.placing import write_anew
from tbdprof.facts.file.reading import load
from tbdprof.facts.keys import ReasonFor, RemarkOn
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Run
from tbdprof.facts.rows import Tables
from tbdprof.facts.windows import COUNTED
from tbdprof.hooks import load as load_hook
from tbdprof.launch.prepared import prepared
from tbdprof.launch.request import RunRequest
from tbdprof.loop.plan import NO_STEPS, Progress, silent

WARMUP_STEPS = 5  # then algorithms are chosen, and gradients and the optimizer's state exist

Count = Callable[..., ncu.Counted]


def refuse(device: str, cuda: Any = None) -> None:
    """Raise UsageError if a device has no counters; `cuda` replaces the driver's library."""
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
    """Return a finished run's recording with a counted step or the reason why not; write its file anew."""
    progress("count under Nsight Compute", 0, NO_STEPS)
    keeps = load_hook(request.framework).give_back_memory()  # the other process needs this memory
    if recording.missing.get(RemarkOn.FILE) is None:
        recording = load(path)  # with the text indices of the file
    try:
        counted = _counted(recording.run, request, count, tool or ncu.find())
        tables = ncu.tables(counted, recording.strings, recording.run.device)
    except UnavailableError as error:
        recording.missing[ReasonFor.COUNTED] = str(error) if keeps is None else f"{error} ({keeps})"
    else:
        _append(recording, tables)
        if counted.remarks:
            recording.missing[RemarkOn.COUNTED_IN_PART] = "; ".join(counted.remarks)
    if recording.missing.get(RemarkOn.FILE) is None:
        try:
            write_anew(recording, path)
        except UsageError as error:
            recording.missing[RemarkOn.FILE] = f"writing the counted step failed, the file is without it: {error}"
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
    """Return the request that repeats a run's steps, on the run's actual device and batch size."""
    return dataclasses.replace(request, device=run.device, batch_size=run.batch_size)


def run_counted(request: RunRequest, cuda: Any = None) -> None:
    """Train, with the surrounding tool's profiling on for one step; `cuda` replaces the driver's library.

    Raise the errors of `suite_run.run`.
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
    """Run the counted step of the request in the only argument (JSON); report a problem in one line on stderr."""
    try:
        run_counted(RunRequest.from_json(arguments[0]))
    except TbdprofError as error:
        sys.stderr.write(f"tbdprof: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
