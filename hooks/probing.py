"""Peak rates of a device: looked up for a GPU, measured with a fixed set of the framework's operators for a CPU.

On a CPU a matmul alone is not enough: on some processors, convolutions of the same framework reach twice its rate, and
utilization would be 200 %. Every operand is a constant, so no random number is drawn. The sizes grow with the number of
threads, so that each thread has equal work. A slow operator runs fewer times.

Some frameworks' allocators keep the memory that the probe takes, and their peak never goes down. Such a framework is
probed in a process of its own (`apart`), because in the watched process the probe would show in every memory figure.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tbdprof.collect import fresh, host
from tbdprof.collect.gpu import cuda_driver, devices
from tbdprof.errors import UnavailableError
from tbdprof.facts.records import NOTABLE_LOAD, Peaks
from tbdprof.facts.units import bytes_text, percent_text
from tbdprof.hooks import Setting, load

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
RUNS = 5  # timed runs of each operator
RUNS_AGAIN = 20  # timed runs of the two fastest, later: load from other processes may have changed
PATIENCE_NS = 100_000_000  # limit for an operator's timed runs: no run begins later
MOST_NS = 2_000_000_000  # limit for all operators of one peak: after it each still untried one has one timed run
WIDTH = 1024  # columns of the matmuls, and length of the inner dimension
ARRAY_BYTES = 1 << 27  # size of each of the two arrays that measure the memory rate
LIMIT_S = 120.0  # limit for the process that only measures, including the import of its framework
_MOST = 16  # limit on the threads that the sizes grow with, to save memory
_ROWS_A_THREAD = 512
_IMAGES_A_THREAD = 4


@dataclass(frozen=True, slots=True)
class Candidate:
    """An operator of the set: `prepare` makes its operands and returns a function that runs it to its end."""

    name: str
    amount: float  # FLOPs or bytes per run
    prepare: Callable[[], Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of a square input, with an output of the same size."""

    inputs: int  # channels
    outputs: int
    kernel: int
    side: int

    def name(self, images: int) -> str:
        """Return a description for the report."""
        k, side = self.kernel, self.side
        return f"{k}×{k} convolution {self.inputs}→{self.outputs}, {side}×{side}, batch {images}"

    def flops(self, images: int) -> int:
        """Return the FLOPs of one run on a batch."""
        return 2 * self.inputs * self.outputs * self.kernel**2 * self.side**2 * images


CONVOLUTIONS = (Convolution(256, 256, 3, 14), Convolution(128, 128, 3, 28), Convolution(512, 1024, 1, 14))


def look_up(device: str, cuda: Any = None) -> Peaks:
    """Return the peaks of "cuda:N" from its driver's figures; raise UnavailableError if they are not known."""
    found = cuda_driver.limits(cuda_driver.index_of(device), cuda)
    return devices.peaks(
        found.name,
        found.capability,
        multiprocessors=found.multiprocessors,
        clock_hz=found.clock_hz,
        memory_bytes_per_s=found.memory_bytes_per_s,
    )


def peaks(device: str, precisions: Sequence[str], measured: Callable[[Sequence[str]], Peaks]) -> Peaks:
    """Return a device's peaks: looked up for "cuda:N", measured by the framework's probe for the CPU."""
    return measured(precisions) if device == "cpu" else look_up(device)


def apart(framework: str, precisions: Sequence[str], threads: int) -> Peaks:
    """Return what a framework's `probe.here` measures in a process of its own, with a number of threads.

    Raise UnavailableError if that process does not start, fails or does not end.
    """
    try:
        return Peaks(**fresh.ask(__name__, [framework, list(precisions), threads], LIMIT_S))
    except (UnavailableError, TypeError) as error:
        raise UnavailableError(f"this CPU's peak is not known: {error}") from error


def main(order: tuple[str, Sequence[str], int]) -> None:
    """Print the peaks as JSON; measure them in this process, which has not imported the framework yet."""
    framework, precisions, threads = order
    load(framework).set_environment(Setting("cpu", threads))
    probe = importlib.import_module(f"tbdprof.hooks.on_{framework}.probe")
    sys.stdout.write(json.dumps(asdict(probe.here(precisions, threads))) + "\n")


def rows(threads: int) -> int:
    """Return how many rows the matmuls have."""
    return _ROWS_A_THREAD * min(threads, _MOST)


def images(threads: int) -> int:
    """Return the batch size of the convolutions."""
    return _IMAGES_A_THREAD * min(threads, _MOST)


def product_flops(threads: int) -> int:
    """Return the FLOPs of one of the matmuls."""
    return 2 * rows(threads) * WIDTH * WIDTH


def product_size(threads: int) -> str:
    """Return rows × columns × inner dimension."""
    return f"{rows(threads)}×{WIDTH}×{WIDTH}"


def measure(
    products: Mapping[str, Sequence[Candidate]],
    streams: Sequence[Candidate],
    refused: Mapping[str, str],
    threads: int,
) -> Peaks:
    """Return the best rate of each precision's operators, and of those that read and write memory.

    If there is no figure, the sources hold the reason instead. That includes the reasons in `refused`.
    """
    begun, busy = time.perf_counter(), _busy_by_others()
    found = {precision: best(candidates, threads) for precision, candidates in products.items()}
    memory, memory_source = best(streams, threads)
    cores_taken = max((_busy_by_others() - busy) / (time.perf_counter() - begun), 0.0)
    others = cores_taken / host.affinity_cores()
    load = _load_remark(others)
    sources = {precision: source + load * (rate is not None) for precision, (rate, source) in found.items()}
    return Peaks(
        {precision: rate for precision, (rate, _) in found.items() if rate is not None},
        memory,
        {**refused, **sources, "memory": memory_source + _cache_remark() + load},
        others=others,
    )


class UntilQuiet:
    """Measures once for the same arguments, and again at each call as long as other processes disturbed it.

    A call returns the best of each rate so far: an operator reached it, whatever else ran then.
    """

    def __init__(self, measured: Callable[..., Peaks]) -> None:
        self._measured = measured
        self._found: dict[tuple[Any, ...], Peaks] = {}

    def __call__(self, *arguments: Any) -> Peaks:
        """Return the best peaks so far for these arguments."""
        known = self._found.get(arguments)
        if known is None or known.is_disturbed:
            again = self._measured(*arguments)
            self._found[arguments] = again if known is None else better(known, again)
        return self._found[arguments]

    def cache_clear(self) -> None:
        """Forget what was measured."""
        self._found.clear()


def better(one: Peaks, other: Peaks) -> Peaks:
    """Return the higher of each rate of two measurements with its source; they are as quiet as the quieter one."""
    rates = dict(one.flops_per_s)
    sources = {**other.sources, **one.sources}
    for precision, rate in other.flops_per_s.items():
        if rate > rates.get(precision, 0.0):
            rates[precision], sources[precision] = rate, other.sources[precision]
    memory = one.bytes_per_s
    if (other.bytes_per_s or 0.0) > (memory or 0.0):
        memory, sources["memory"] = other.bytes_per_s, other.sources["memory"]
    loads = [each.others for each in (one, other) if each.others is not None]
    return Peaks(rates, memory, sources, others=min(loads, default=None))


def best(
    candidates: Iterable[Candidate], threads: int, clock: Callable[[], int] = time.perf_counter_ns
) -> tuple[float | None, str]:
    """Return the highest rate per second and the operator that reached it, or None and the reason if none could run."""
    trials, reason, until_ns = list[_Trial](), "there is no operator for it", clock() + MOST_NS
    for candidate in candidates:
        try:
            trials.append(_try(candidate, RUNS, clock, until_ns))
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
    if not trials:
        return None, f"not measured: {reason}"
    trials.sort(key=_rate, reverse=True)
    trials += [_try(trial.candidate, RUNS_AGAIN, clock, until_ns) for trial in trials[:2] if clock() < until_ns]
    found = max(trials, key=_rate)
    return _rate(found), f"{found.candidate.name}, {_count(threads, 'thread')}, best of {found.runs}"


@dataclass(frozen=True, slots=True)
class _Trial:
    candidate: Candidate
    shortest_ns: int
    runs: int


def _rate(trial: _Trial) -> float:
    return trial.candidate.amount / trial.shortest_ns * 1e9


def _try(candidate: Candidate, runs: int, clock: Callable[[], int], until_ns: int) -> _Trial:
    """Run a candidate once untimed, which wakes the threads and fills caches, then several times timed."""
    run = candidate.prepare()
    run()
    times: list[int] = []
    until_ns = min(until_ns, clock() + PATIENCE_NS)
    while not times or (len(times) < runs and clock() < until_ns):
        started = clock()
        run()
        times.append(max(1, clock() - started))
    return _Trial(candidate, min(times), len(times))


def _busy_by_others() -> float:
    """Return the CPU time, in seconds, that other processes have used so far on the cores of this process."""
    return host.machine_busy_cpu_seconds() - host.process_cpu_seconds()


def _load_remark(others: float) -> str:
    """Return a remark if other processes used many cores: the true peak is higher, and utilization may exceed 1."""
    return f" (other processes took {percent_text(others)} of the cores meanwhile)" if others > NOTABLE_LOAD else ""


def _cache_remark(caches: Path = CACHES) -> str:
    """Return a remark if the last-level cache may hold a large part of the arrays."""
    size = last_level_cache_bytes(caches)
    if size is None or 4 * size <= 2 * ARRAY_BYTES:
        return ""
    return f" (a last-level cache of {bytes_text(size)} may have held part of it)"


def last_level_cache_bytes(caches: Path = CACHES) -> int | None:
    """Return the size of the first core's largest cache, or None if the operating system does not report it."""
    try:
        sizes = [(folder / "size").read_text().strip() for folder in caches.glob("index*")]
        return max((int(size.removesuffix("K")) * 1024 for size in sizes), default=None)
    except (OSError, ValueError):
        return None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
