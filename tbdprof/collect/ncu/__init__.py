"""Exact counts of one training step under Nsight Compute, in a process of its own that nothing else profiles.

The driver's own switch selects the step: cuProfilerStart and cuProfilerStop, called through ctypes around it. NVTX
ranges of one thread would leave out what autograd's threads launch, and would need a library in each framework. Every
launch runs several times, alone on the device, and its memory is restored in between. So durations are not those of
training. Neither clocks nor caches are controlled. The FLOPs of FP32 are `flop_count_sp` of NVIDIA's table of metrics
(CUPTI, "Metrics Mapping Table"): fused multiply-adds count twice, additions and multiplications once.

The metrics' names come from the tables of libnvperf_host 13.0 and 13.5, by chip.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tbdprof.collect.gpu import cuda_driver
from tbdprof.collect.ncu import output
from tbdprof.collect.ncu.output import Launch
from tbdprof.errors import UnavailableError
from tbdprof.facts import counters
from tbdprof.facts.records import KernelKind, Strings
from tbdprof.facts.rows import CountRow, KernelRow, Tables, table

FOLDERS = ("/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*")
LIMIT_S = 300.0
MOST_LAUNCHES = 6000
MOST_TRIES = 4

SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
COMMON: Mapping[str, str] = {
    "gpu__time_duration.sum": counters.COUNTED_NS,
    SASS.format("ffma"): counters.COUNTED_FFMA,
    SASS.format("fadd"): counters.COUNTED_FADD,
    SASS.format("fmul"): counters.COUNTED_FMUL,
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed": counters.COUNTED_FP32_PIPE,
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": counters.COUNTED_TENSOR_PIPE,
    "dram__bytes.sum": counters.COUNTED_DRAM_BYTES,
}
# By the type of the operands; each adds about one more run of every kernel.
BESIDE: Mapping[str, tuple[str, ...]] = {"bf16": ("bf16", "tf32"), "fp16": ("fp16", "tf32"), "fp64": ("fp64",)}
_TENSOR = "sm__ops_path_tensor_src_{}.sum"
_SOURCES: Mapping[str, tuple[str, ...]] = {
    "tf32": ("tf32_dst_fp32",),
    "bf16": ("bf16_dst_fp32",),
    "fp16": ("fp16_dst_fp16", "fp16_dst_fp32"),
    "fp64": ("fp64",),
}
_SOURCES_OF: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "7.0": {"fp16": _SOURCES["fp16"]},
    "7.5": {"fp16": ("fp16_bf16_tf32_dst_fp32", "fp16_dst_fp16")},
    "9.0": {**_SOURCES, "fp16": ("fp16",)},
}

# GA100, GA10B and GH100 run HFMA2.MMA in the tensor pipe. It multiplies pairs of halves, not matrices. Compilers load
# constants with it, so the pipe is active for a percent of a kernel that has no matmul (seen on an H100).
_PAIRS = "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.avg.pct_of_peak_sustained_elapsed"
_PAIRS_IN_TENSOR_PIPE = ("8.0", "8.7", "9.0")

ABSENT = "Nsight Compute is not installed: no ncu on the PATH, in /usr/local/cuda*/bin or /opt/nvidia/nsight-compute/*"
NO_KERNEL = "Nsight Compute saw no kernel in the counted step"
_FOR_ROOT = "the driver keeps its counters for root: load its module with NVreg_RestrictProfilingToAdminUsers=0"
_HELD = "another profiler holds the device's counters (DCGM lets them go with: dcgmi profile --pause)"
_LOCKED = "Nsight Compute's lock is another user's or cannot be written: set TMPDIR to a folder of your own"
# The first that occurs decides: the tool names ERR_NVGPUCTRPERM in every message about missing permission.
_REASONS: Mapping[str, str] = {
    "unavailable or the user does not have permission": f"{_HELD}, or {_FOR_ROOT}",
    "ERR_NVGPUCTRPERM": _FOR_ROOT,
    "driver resource was unavailable": _HELD,
    "acquire the interprocess lock": _LOCKED,
    "open/create lock file": _LOCKED,
    "InterprocessLockFailed": _LOCKED,
    "not compatible with Nsight Compute": "this Nsight Compute does not fit the driver: install a newer one",
    "LibraryNotLoaded": "Nsight Compute cannot load the driver's profiling library here",
}


@dataclass(frozen=True, slots=True)
class Counted:
    """The launches of the counted step in order, and remarks about them."""

    launches: Sequence[Launch]
    counter_of: Mapping[str, str]  # by metric
    remarks: Sequence[str] = ()


def find(path: str | None = None, folders: Iterable[str] = FOLDERS) -> Path | None:
    """Return the path of Nsight Compute's command line, or None if there is none; the PATH (or `path`) goes first."""
    on_path = shutil.which("ncu", path=path)
    if on_path:
        return Path(on_path)
    for folder in folders:
        for place in sorted(Path("/").glob(folder.removeprefix("/")), reverse=True):
            file = place / "ncu"
            if file.is_file() and os.access(file, os.X_OK):
                return file
    return None


def metrics(capability: str, precision: str) -> dict[str, str]:
    """Return what to count on a device of a compute capability ("9.0") in a run of a precision: metric -> counter."""
    sources = _SOURCES_OF.get(capability, _SOURCES)
    found = dict(COMMON)
    if capability in _PAIRS_IN_TENSOR_PIPE:
        found[_PAIRS] = counters.COUNTED_PAIRS_PIPE
    for kind in BESIDE.get(precision, ("tf32",)):
        for source in sources.get(kind, ()):
            found[_TENSOR.format(source)] = counters.counted_tensor_ops(kind)
    return found


def command(tool: Path, log: Path, wanted: Iterable[str], child: Sequence[str]) -> list[str]:
    """Return the command that counts what a child runs between the profiler's start and stop."""
    flags = {
        "--config-file": "off",  # the user's own file could select other kernels
        "--page": "raw",
        "--print-units": "base",
        "--profile-from-start": "off",
        "--clock-control": "none",
        "--cache-control": "none",
        "--replay-mode": "kernel",
        "--target-processes": "application-only",
        "--print-kernel-base": "mangled",
        "--launch-count": str(MOST_LAUNCHES),
        "--log-file": str(log),
        "--metrics": ",".join(wanted),
    }
    return [str(tool), "--csv", *(word for flag in flags.items() for word in flag), *child]


def count(child: Sequence[str], wanted: Mapping[str, str], *, tool: Path, limit_s: float = LIMIT_S) -> Counted:
    """Return the counts of a child; end the child in any case, and raise UnavailableError with one reason on failure.

    Metrics that the tool does not know on this device are left out, with a remark.
    """
    left, unknown, until = dict(wanted), list[str](), time.monotonic() + limit_s
    for _ in range(MOST_TRIES):
        try:
            code, said = _run(child, left, tool, until - time.monotonic())
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"Nsight Compute was not done after {limit_s:g} s, and was ended") from error
        missing = [name for name in left if any(_names(each, name) for each in output.unknown_metrics(said))]
        unknown += missing
        left = {name: counter for name, counter in left.items() if name not in missing}
        if not missing or output.launches(said):  # the tool may go on without the unknown metrics
            return _judged(code, said, left, unknown)
    raise UnavailableError(f"Nsight Compute knows too few metrics of this device: not {', '.join(unknown)}")


def tables(counted: Counted, strings: Strings, device: str) -> Tables:
    """Return launches as `kernel` and `count` rows; each kernel begins where the last ended, from 0 on."""
    kernels, values, now = list[KernelRow](), list[CountRow](), 0
    for place, launch in enumerate(counted.launches):
        end = now + round(launch.values.get("gpu__time_duration.sum", 0))
        kernels.append(
            KernelRow(
                name=strings.add(launch.name),
                kind=KernelKind.KERNEL,
                device=strings.add(device),
                stream=launch.stream,
                launch_ns=-1,
                start_ns=now,
                end_ns=end,
                grid=strings.add(json.dumps(launch.grid)),
                block=strings.add(json.dumps(launch.block)),
            )
        )
        found = _by_counter(launch, counted.counter_of)
        values += [CountRow(place, strings.add(name), value) for name, value in found.items()]
        now = end
    return {"kernel": table("kernel", kernels), "count": table("count", values)}


@contextmanager
def switched_on(index: int, cuda: Any = None) -> Iterator[None]:
    """Make the profiler of this process, if there is one, profile a device's work until the block ends.

    `cuda` can replace the driver's library. Raise UnavailableError if the driver refuses.
    """
    try:
        cuda = cuda_driver.library(cuda)
        _enter_context(cuda, index)
        cuda_driver.check(cuda.cuProfilerStart(), "cuProfilerStart")
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"the CUDA driver cannot mark the step to count: {error}") from error
    try:
        yield
    finally:
        cuda.cuProfilerStop()


def _enter_context(cuda: Any, index: int) -> None:
    """Make the device's primary context, which frameworks use, current in this thread if it has no context."""
    current = ctypes.c_void_p()
    cuda_driver.check(cuda.cuInit(0), "cuInit")
    cuda_driver.check(cuda.cuCtxGetCurrent(ctypes.byref(current)), "cuCtxGetCurrent")
    if not current.value:
        cuda_driver.make_context(cuda, index)


def _run(child: Sequence[str], wanted: Iterable[str], tool: Path, limit_s: float) -> tuple[int, str]:
    """Run a child under the tool; return its exit code and all output; the child's whole process group is ended.

    Raise subprocess.TimeoutExpired if it takes too long.
    """
    with TemporaryDirectory(prefix="tbdprof-ncu-") as folder:
        log, printed = Path(folder) / "log", Path(folder) / "printed"
        with printed.open("wb") as sink:
            process = _started(command(tool, log, wanted, child), sink)
            try:
                code = process.wait(limit_s)
            finally:
                _end(process)
        return code, "\n".join(file.read_text(errors="replace") for file in (printed, log) if file.exists())


def _started(words: Sequence[str], sink: Any) -> "subprocess.Popen[bytes]":
    settings = {**os.environ, "LC_ALL": "C.UTF-8"}  # numbers are printed in the format of the locale
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=settings,
            start_new_session=True,
        )
    except OSError as error:
        raise UnavailableError(f"Nsight Compute cannot be started: {words[0]}: {error.strerror}") from error


def _end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError, PermissionError):  # it is gone, and so is everything it started
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _judged(code: int, said: str, wanted: Mapping[str, str], unknown: Sequence[str]) -> Counted:
    found = output.launches(said)
    if not any(_by_counter(each, wanted) for each in found):
        raise UnavailableError(_reason(code, said))
    remarks = [f"unknown on this device: {', '.join(unknown)}"] if unknown else []
    if denied := output.denied_metrics(said):
        remarks.append(f"not to be read on this device: {', '.join(denied)}")
    if len(found) >= MOST_LAUNCHES:
        remarks.append(f"the first {MOST_LAUNCHES} launches of the step were counted, and no others")
    if errors := [each for each in output.errors(said) if not output.unknown_metrics(f"==ERROR== {each}")]:
        remarks.append(f"Nsight Compute said: {errors[0]}")
    return Counted(found, wanted, remarks)


def _reason(code: int, said: str) -> str:
    """Return why nothing was counted, in one sentence."""
    for sign, reason in _REASONS.items():
        if sign in said:
            return reason
    own = [line.removeprefix("tbdprof: ") for line in said.splitlines() if line.startswith("tbdprof: ")]
    errors = output.errors(said)
    if own:
        return f"the step to count could not be run: {own[-1]}"
    if errors:
        return errors[0] if errors[0].startswith("Nsight Compute") else f"Nsight Compute failed: {errors[0]}"
    return NO_KERNEL if not code else f"Nsight Compute ended with {code}: {_last_line(said)}"


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("==")]
    return lines[-1] if lines else "it said nothing"


def _names(name: str, metric: str) -> bool:
    """Return whether a name in the tool's message, with or without suffix, is that of a metric."""
    return metric == name or metric.startswith(f"{name}.")


def _by_counter(launch: Launch, counter_of: Mapping[str, str]) -> dict[str, float]:
    """Return a launch's values by counter; several metrics of one counter are added."""
    found: dict[str, float] = {}
    for metric, counter in counter_of.items():
        if metric in launch.values:
            found[counter] = found.get(counter, 0.0) + launch.values[metric]
    return found
