"""How long a user waits for `tbdprof run`, and what its report says that its windows cost."""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from cost.processes import BenchmarkError, environment
from cost.sizes import Size
from tbdprof.analysis.summary import summarize
from tbdprof.facts.file.reading import load
from tbdprof.facts.recording import Recording
from tbdprof.results.time import Overhead


@dataclass(frozen=True, slots=True)
class Waits:
    """One run of `tbdprof run`, in seconds, and the ratios that its own report gives."""

    to_first_step_s: float  # from the start of the command
    steps_s: float
    to_report_s: float  # from the end of the last step to the end of the command
    own: dict[str, Overhead | None]  # the report's estimate by window


def measure(framework: str, size: Size, threads: int) -> Waits:
    """Run the command; raise BenchmarkError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.tbd"
        command = [sys.executable, "-m", "tbdprof", *size.arguments(framework, threads), f"--output={path}"]
        begun = time.monotonic_ns()
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(threads))
        ended = time.monotonic_ns()
        if done.returncode != 0:
            raise BenchmarkError(f"`{' '.join(command)}` failed:\n{done.stderr[-2000:]}")
        recording = load(path)
    first, last = edges(recording)
    summary = summarize(recording)
    own = {"memory": summary.memory_overhead, "kernels": summary.kernels_overhead}
    return Waits((first - begun) / 1e9, (last - first) / 1e9, (ended - last) / 1e9, own)


def edges(recording: Recording) -> tuple[int, int]:
    """Return when the first step began and the last one ended, as `time.monotonic_ns`, which all processes share."""
    steps = [table for window in recording.windows if len(table := window.table("step"))]
    return min(int(each["start_ns"].min()) for each in steps), max(int(each["end_ns"].max()) for each in steps)
