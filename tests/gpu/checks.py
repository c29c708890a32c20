"""What must be shown on a card, each as a function of the output folder that returns a verdict with its figures."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from gpu import beside, nets, products, runs
from gpu import cost as costs
from gpu.cupti_records import cupti_records
from gpu.fixtures import parted, trimmed
from gpu.schedule import FAIL, NOT_POSSIBLE, PASS, Check, Verdict, judged
from gpu.setting import DEVICE, LARGE_BATCH, LARGE_IMAGE, STEADY_S, WINDOW_S

from tbdprof.analysis.device.energy import counter_against_power, energy
from tbdprof.analysis.summary import summarize
from tbdprof.collect import ncu
from tbdprof.collect.gpu import cuda_driver, nvidia
from tbdprof.collect.pm import collector
from tbdprof.doctor import checks
from tbdprof.errors import DeviceMemoryError, TbdprofError
from tbdprof.facts.file.reading import load as load_recording
from tbdprof.facts.recording import Window
from tbdprof.launch import counted_step
from tbdprof.loop.plan import Plan, Schedule
from tbdprof.report import doctor_report
from tbdprof.results.levels import Levels

HERE = Path(__file__).parent
POINTS = 0.03  # busy, between the levels
WITHIN = 16  # of the 20 longest kernels
COUNT_S = 130.0


def levels_reached(_folder: Path) -> Verdict:
    """What each level's probe answers here, before anything is judged."""
    asked: dict[str, Callable[[], Any]] = {
        "device": lambda: dataclasses.asdict(cuda_driver.limits(0)),
        "identity": lambda: dataclasses.asdict(cuda_driver.identity(0)),
        "driver": lambda: dataclasses.asdict(nvidia.driver()),
        "counters readable": lambda: dataclasses.asdict(nvidia.counters()),
        "PM sampling": lambda: dict(collector.probe(DEVICE)),
        "ncu": lambda: _version(ncu.find()),
        "doctor": lambda: doctor_report.as_text(checks.examine()).splitlines(),
    }
    return Verdict(PASS, "each probe's own answer", {name: _answer(ask) for name, ask in asked.items()})


def resnet50(precision: str, batch_size: int, framework: str = "torch") -> Check:
    """Return the check of ResNet-50's report at a precision and a batch."""

    def run(folder: Path) -> Verdict:
        summary = summarize(runs.of_suite(runs.request(folder, precision, batch_size, framework)))
        holds = runs.complete_conditions(summary) | runs.memory_conditions(summary)
        return judged("the report", holds, runs.figures(summary))

    name = f"resnet50-{precision}-{batch_size}" if framework == "torch" else f"resnet50-{framework}"
    return Check(name, 90, run)


def transformer(folder: Path) -> Verdict:
    """A small transformer with Adam: the report and its identities."""
    plan = Plan(warmup=10, steps=20, kernel_steps=10, kernel_block_steps=2)
    recording = runs.own_run(
        nets.transformer, lambda _: plan, "transformer", precision="tf32", path=_fresh(folder / "transformer.tbd")
    )
    summary = summarize(recording)
    holds = runs.complete_conditions(summary) | runs.memory_conditions(summary)
    return judged("the report", holds, runs.figures(summary))


def busy(_folder: Path) -> Verdict:
    """Busy time by the kernels beside NVML's and GPM's, of a loop that idles and of ResNet-50."""
    holds, figures = dict[str, bool](), dict[str, Any]()
    loops = {
        "a loop that waits": (nets.waiting, "fp32"),
        "ResNet-50": (lambda: nets.suite_net("resnet50", 256, "fp32"), "fp32"),
    }
    for name, (build, precision) in loops.items():
        summary = summarize(runs.own_run(build, _long_window, name, precision=precision))
        found = None if summary.device is None else summary.device.busy
        seconds = sum(_seconds(window) for window in summary.recording.named("kernels"))
        differences = {} if found is None else {"NVML": found.driver_difference, "GPM": found.gpm_difference}
        figures[name] = {
            "seconds": seconds,
            "kernels": None if found is None else found.kernels,
            **differences,
            "missing": summary.missing_now,
        }
        for source in ("NVML", "GPM"):
            difference = differences.get(source)
            holds[f"{name}: {source} within 3 points"] = difference is not None and abs(difference) <= POINTS
        holds[f"{name}: the window lasted 15 s"] = seconds >= 15
    return judged("busy time", holds, figures)


def counted_kernels(folder: Path) -> Verdict:
    """The 20 longest kernels of ResNet-50 in FP32: sampled within 2 points of counted for at least 16."""
    asked = runs.request(folder, "fp32", 32)
    recording = runs.recorded(asked)
    count = partial(ncu.count, limit_s=COUNT_S)
    summary = summarize(counted_step.add(recording, asked, asked.path(), count=count))
    if summary.counted is None:
        return Verdict(NOT_POSSIBLE, summary.missing.get("counted", "nothing was counted"), runs.figures(summary))
    found = summary.levels
    figures = _levels(found) | {
        "unmatched share": summary.counted.unmatched_share,
        "left over": summary.counted.left_over,
        "fp32_flops counted": summary.counted.fp32_flops,
        "flops by definition": summary.counted.analytic_flops,
        "violations": list(summary.counted.violations)[:5],
    }
    agreed = {} if found is None else {each.what: each for each in found.agreements}
    pipe = agreed.get("FP32 pipe, sampled against counted")
    if pipe is not None:
        return judged(
            "FP32 pipe, sampled against counted", {"16 of 20 within 2 points": pipe.within >= WITHIN}, figures
        )
    flop = agreed.get("FLOPs of products, analytic against counted")
    reason = f"not sampled ({summary.missing.get('sampled', 'no reason reported')}): analytic against counted instead"
    if flop is None:
        return Verdict(FAIL, f"{reason}, and no product was matched", figures)
    return judged(reason, {"all products within 5 points": flop.within == flop.of}, figures)


def steady_energy(folder: Path) -> Verdict:
    """The energy counter against integrated power over a minute of steady training, 5 s cut at either end."""
    plan = Plan(warmup=30, steps=20, clean_s=STEADY_S, windows=("clean",))
    recording = runs.own_run(
        lambda: nets.suite_net("resnet50", 64, "bf16"),
        lambda _: plan,
        "resnet50",
        precision="bf16",
        path=_fresh(folder / "energy.tbd"),
    )
    (window,) = recording.named("clean")
    both, found = counter_against_power(recording, window), energy(recording, None).value
    if both is None or both.ratio is None or found is None:
        missing = summarize(recording).missing_now
        return Verdict(NOT_POSSIBLE, "the counter or the power was not reported over 60 s", {"missing": missing})
    figures = {**dataclasses.asdict(both), "ratio": both.ratio, "joules per image": found.joules_per_unit}
    holds = {
        "counter and power within 5 %": abs(both.ratio - 1) <= 0.05,
        "60 s were steady": both.seconds >= 60,
        "joules per image": found.joules_per_unit is not None,
    }
    return judged("energy", holds, figures)


def out_of_memory(folder: Path) -> Verdict:
    """A batch that cannot fit: what was live, what was asked for, and a batch that then does."""
    asked = dataclasses.replace(
        runs.request(folder, "bf16", LARGE_BATCH),
        batch_size=LARGE_BATCH,
        options=LARGE_IMAGE,
        output=folder / "out-of-memory.tbd",
        schedule=Schedule(warmup=2, steps=2),
    )
    try:
        runs.of_suite(asked)
    except DeviceMemoryError as error:
        said = str(error)
    else:
        return Verdict(FAIL, f"batch {LARGE_BATCH} did fit")
    if not asked.path().exists():  # it was out of memory before the training began
        return Verdict(FAIL, "nothing was recorded", {"line": said})
    summary = summarize(load_recording(asked.path()))
    ended = summary.post_mortem
    if ended is None:
        return Verdict(FAIL, f"no post-mortem: {summary.missing.get('post_mortem')}", {"said": said})
    fitting = ended.fitting_batch
    figures: dict[str, Any] = {"line": said, **dataclasses.asdict(ended), "releasable": ended.releasable_bytes}
    holds = {
        "what was live is reported by category": bool(ended.live),
        "what was asked for is reported": ended.asked_bytes is not None,
        "what could be released is reported": ended.releasable_bytes is not None,
        "the line names a batch": fitting is not None and f"--batch-size {fitting}" in said,
        "that batch fits": fitting is not None and _fits(fitting, folder),
    }
    return judged("out of memory on purpose", holds, figures)


def fixtures(folder: Path) -> Verdict:
    """Small real recordings of what the checks before have left, below 300 KB each."""
    made: dict[str, int | None] = {}
    (folder / "fixtures").mkdir(exist_ok=True)
    for source in sorted(folder.glob("*.tbd")):
        for part, recording in parted(load_recording(source)).items():
            name = f"{source.stem}-{part}.tbd"
            made[name] = trimmed(recording, folder / "fixtures" / name)
    if not made:
        return Verdict(NOT_POSSIBLE, "no recording is there: run the other checks first")
    small = [name for name, size in made.items() if size is not None]
    holds = {f"one of {part} is small": any(f"-{part}." in name for name in small) for part in ("memory", "time")}
    return judged("fixtures", holds, {"bytes": made})


CHECKS = (
    Check("levels", 60, levels_reached),
    resnet50("fp32", 32),
    Check("transformer", 60, transformer),
    Check("kernels", COUNT_S + 30, counted_kernels),
    Check("busy", 100, busy),
    *(products.check(precision) for precision in nets.PRODUCTS),
    resnet50("tf32", 256),
    resnet50("bf16", 256),
    Check("throughput", 15, beside.throughput),
    Check("low-utilization", 15, beside.low_utilization),
    resnet50("tf32", 32),
    resnet50("bf16", 32),
    resnet50("fp32", 256),
    Check("out-of-memory", 180, out_of_memory),
    costs.check(64, ("clean", "kernels", "memory"), 90),
    costs.check(256, ("clean", "kernels", "memory"), 110),
    Check("energy", 110, steady_energy),
    costs.check(64, (costs.PM,), 150),
    costs.check(256, (costs.PM,), 150),
    Check("fixtures", 60, fixtures),
    resnet50("fp32", 32, "tensorflow"),
    Check("cupti-python", 60, cupti_records),
)


def _levels(found: Levels | None) -> dict[str, Any]:
    if found is None:
        return {"levels": None}
    agreements = {each.what: f"{each.within} of {each.of}, worst {each.worst:+.4f}" for each in found.agreements}
    rows = [
        {
            "name": row.key[0][:80],
            "share": row.share,
            "flop": [row.analytic_flop, row.counted_flop],
            "fp32": [row.sampled.fp32_low, row.sampled.fp32, row.counted.fp32],
            "tensor": [row.sampled.tensor, row.counted.tensor],
        }
        for row in found.rows
    ]
    whole = {name: dataclasses.asdict(getattr(found, name)) for name in ("sampled", "counted", "device")}
    return {"agreements": agreements, "rows": rows, "whole": whole}


def _long_window(net: nets.Net) -> Plan:
    """Return a plan whose kernels window lasts long enough for the driver's own figures."""
    steps = max(2, int(WINDOW_S / nets.seconds_per_step(net)) + 1)
    block = max(1, steps // 10)
    return Plan(warmup=3, steps=3, kernel_steps=steps + block, kernel_block_steps=block, windows=("clean", "kernels"))


def _seconds(window: Window) -> float:
    steps = window.table("step")
    return float(steps["end_ns"].max() - steps["start_ns"].min()) / 1e9 if len(steps) else 0.0


def _fits(batch_size: int, folder: Path) -> bool:
    """Return whether a batch trains, in a process of its own."""
    words = ["run", "resnet50", "--framework", "torch", "--device", DEVICE, "--precision", "bf16", "-q", "--force"]
    sizes = ["--batch-size", str(batch_size), "--steps", "2", "--warmup", "2", "-o", str(folder / "that-fits.tbd")]
    sizes += [word for name, value in LARGE_IMAGE.items() for word in (f"--{name.replace('_', '-')}", value)]
    done = subprocess.run([sys.executable, "-m", "tbdprof", *words, *sizes], stdout=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def _fresh(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


def _answer(ask: Callable[[], Any]) -> Any:
    """Return what a probe answers, or why it does not; the others are asked in any case."""
    try:
        return ask()
    except (TbdprofError, OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"


def _version(tool: Path | None) -> list[str]:
    if tool is None:
        return [ncu.ABSENT]
    done = subprocess.run([str(tool), "--version"], capture_output=True, text=True, timeout=20, check=False)
    return [str(tool), *(done.stdout or done.stderr).strip().splitlines()]
