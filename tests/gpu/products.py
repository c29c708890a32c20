"""Known matrix products: arithmetic, sampled and counted use of the pipe that computes them."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu import nets, runs, setting
from gpu.schedule import NOT_POSSIBLE, Check, Verdict, judged
from gpu.setting import DEVICE

from tbdprof.analysis.kernels.executions import gather
from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.kernels.launches import by_launch
from tbdprof.analysis.summary import summarize
from tbdprof.collect import ncu
from tbdprof.collect.gpu import cuda_driver
from tbdprof.errors import UnavailableError
from tbdprof.facts.file.placing import save
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.windows import SAMPLED
from tbdprof.hooks import Setting
from tbdprof.launch.prepared import prepared
from tbdprof.loop.plan import Plan
from tbdprof.results.summary import Summary

HERE = Path(__file__).parent
COUNT_S = 40.0
BOUND = 0.02
HOPPER = "9.0"
# Products of devices before Hopper (mma.sync) have two thirds of the rate there that Hopper's own (wgmma) have.
OLDER_KERNEL = re.compile(r"(?<![a-z\d])(sm[78]\d|cutlass_[78]\d|ampere|turing|volta)_", re.I)
OLDER_SHARE = 2 / 3


def check(precision: str) -> Check:
    """Return the check of known matrix products at a precision: arithmetic, sampled and counted."""

    def run(folder: Path) -> Verdict:
        plan = Plan(warmup=5, steps=1, kernel_steps=60, kernel_block_steps=10, windows=("kernels", SAMPLED))
        recording = runs.own_run(lambda: nets.products(precision), lambda _: plan, "products", precision=precision)
        reason = _count_products(recording, precision)
        save(recording, folder / f"products-{precision}.tbd", force=True)
        summary = summarize(recording)
        capability = "" if setting.ON_CPU else cuda_driver.limits(0).capability
        rows = at_each_level(summary, gather(recording), precision, capability)
        holds = {
            f"{layer} by {row['kernel'][:40]} {name}": fits
            for layer, row in rows.items()
            for name, fits in agreements(row).items()
        }
        figures = {**rows, "not counted": reason, "sampled in part": summary.missing_now}
        if not holds:
            lacking = [summary.missing.get("sampled", "not sampled"), reason or "not counted"]
            return Verdict(NOT_POSSIBLE, "; ".join(lacking), figures)
        return judged("matrix products within 2 points of arithmetic and Nsight Compute", holds, figures)

    return Check(f"products-{precision}", COUNT_S + 40, run)


def count_here(precision: str) -> None:
    """Compute the products of a precision, one step of them marked for Nsight Compute."""
    with prepared("torch", Setting(DEVICE, precision=setting.precision(precision), seed=0)) as hook:
        net = nets.products(precision)
        for _ in range(3):
            net.step()
        hook.synchronize()
        with ncu.switched_on(0):
            net.step()
            hook.synchronize()


def _count_products(recording: Recording, precision: str) -> str | None:
    """Add a counted step of the same products to a recording; return why there is none."""
    tool = ncu.find()
    if tool is None:
        return ncu.ABSENT
    wanted = ncu.metrics(cuda_driver.limits(0).capability, precision)
    child = [sys.executable, str(HERE / "check.py"), "--products", precision]
    try:
        counted = ncu.count(child, wanted, tool=tool, limit_s=COUNT_S)
    except UnavailableError as error:
        return str(error)
    tables = dict(ncu.tables(counted, recording.strings, DEVICE))
    recording.windows.append(Window(len(recording.windows), "counted", "complete", tables))
    return "; ".join(counted.remarks) or None


def at_each_level(
    summary: Summary, kernels: Kernels | None, precision: str, capability: str
) -> dict[str, dict[str, Any]]:
    """Return what is known of each product, by the name of its module: fractions of the pipe it needs."""
    if kernels is None or summary.levels is None:
        return {}
    peaks, clock = summary.recording.run.peaks, _clock(summary)
    if peaks is None:
        return {}
    peak = peaks.flops_per_s[precision] * (clock / peaks.clock_hz if clock and peaks.clock_hz else 1.0)
    rows, launches = {row.key: row for row in summary.levels.rows}, by_launch(kernels)
    part, found = ("fp32" if precision == "fp32" else "tensor"), dict[str, dict[str, Any]]()
    for layer in {kernels.strings[int(index)] for index in set(kernels.layer.tolist())}:
        if "by" not in layer:
            continue
        chosen = [index for index in range(len(kernels)) if kernels.strings[int(kernels.layer[index])] == layer]
        longest = max(set(launches.of_kernel[chosen].tolist()), key=lambda place: float(launches.seconds[place]))
        seconds = float(kernels.own_ns[chosen].sum()) / 1e9 / kernels.steps / nets.TIMES
        row = rows.get(launches.keys[longest])
        kernel = launches.keys[longest][0]
        found[layer] = {
            "kernel": kernel,
            "arithmetic": nets.flops(layer) / (peak * share_of_peak(kernel, precision, capability) * seconds),
            "sampled": None if row is None else getattr(row.sampled, part),
            "counted": None if row is None else getattr(row.counted, part),
            "counted FLOPs over the definition's": _flops_ratio(summary, launches.keys[longest], layer),
            "seconds": seconds,
        }
    return found


def share_of_peak(kernel: str, precision: str, capability: str) -> float:
    """Return the share of the device's peak at which a kernel's pipe is full."""
    is_older = precision != "fp32" and capability == HOPPER and OLDER_KERNEL.search(kernel) is not None
    return OLDER_SHARE if is_older else 1.0


def _flops_ratio(summary: Summary, key: tuple[str, str, str], layer: str) -> float | None:
    exactly = [] if summary.counted is None else [each for each in summary.counted.kernels if each.key == key]
    if not exactly or exactly[0].fp32_flops is None:
        return None
    (each,) = exactly
    total = (each.fp32_flops or 0) + sum(each.tensor_flops.values())
    return total / each.calls / nets.flops(layer)


def agreements(row: Mapping[str, Any]) -> dict[str, bool]:
    """Return which levels of a product are within 2 points, of those that are known."""
    sampled, counted, arithmetic = (row[name] for name in ("sampled", "counted", "arithmetic"))
    found = {}
    if sampled is not None and arithmetic is not None:
        found["sampled within 2 points of arithmetic"] = abs(sampled - arithmetic) <= BOUND
    if sampled is not None and counted is not None:
        found["sampled within 2 points of counted"] = abs(sampled - counted) <= BOUND
    return found


def _clock(summary: Summary) -> float | None:
    found = None if summary.device is None else summary.device.sm_clock.get("kernels")
    return None if found is None else found.mean_hz
