"""The first screen: what limits the run and what to try first, how fast it goes, and where a step's time goes."""

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tbdprof.facts.batches import SAMPLES
from tbdprof.facts.consumed import STEPS
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import Run
from tbdprof.facts.units import bytes_text, decimal_text, one_of, percent_text, seconds_text, times_text
from tbdprof.facts.windows import CLEAN, KERNELS
from tbdprof.report.terminal_parts import sampled_text
from tbdprof.report.terminal_parts.tables import ABOVE, LEAST_SHOWN, MARK, outside_text, sheet
from tbdprof.results.kernels import ANALYTIC, AtClock, Flop, Utilization
from tbdprof.results.memory import CATEGORIES, Memory
from tbdprof.results.summary import Summary
from tbdprof.results.time import Communication, CpuUtilization, Idle, Rate, StepTime, Throughput, Verdict
from tbdprof.suite.switches import ALL, flag

BAR_COLUMNS = 40
TF32_FLAGS = ("tf32", "fp32_precision", "float32_matmul_precision")  # parts of the names of settings that switch TF32
AT_MOST = "at most: other processes had cores while the peak was measured, so it may be higher"
IDLE = {
    "data_wait": "waiting for data",
    "launching": "launching",
    "synchronization": "synchronization",
    "copies": "copies",
    "communication": "communication",
}


def view(summary: Summary, *, full: bool = False) -> RenderableType:
    """Return the first screen; `full` shows all advice instead of the first only."""
    parts: list[RenderableType] = [Group(*head(summary))]
    if summary.cpu is not None and summary.cpu.disturbed:
        parts.append(_disturbed(summary.cpu))
    if summary.verdict is not None:
        parts.append(_verdict(summary.verdict, full=full))
    parts += [Group(Text(), sheet(figures(summary))), _unmeasured(summary)]
    if summary.step_time is not None:
        parts.append(_phases(summary.step_time))
    return Group(*parts)


def unmeasured(summary: Summary) -> Mapping[str, list[str]]:
    """Return the figures that the first screen lacks, by the reason."""
    flop = None if summary.utilization is None else summary.utilization.flop
    asked: tuple[tuple[str, str, object], ...] = (
        ("throughput", "throughput", summary.throughput),
        ("what binds it", "verdict", summary.verdict),
        ("device busy", "utilization.device_busy", summary.utilization and summary.utilization.busy),
        ("utilization of the floating-point units", "utilization.mfu", flop and flop.value),
        ("time by phase", "time", summary.step_time),
        ("memory", "memory", summary.memory),
    )
    found: dict[str, list[str]] = {}
    for label, path, value in asked:
        if value is None and path in summary.missing:
            found.setdefault(summary.missing[path], []).append(label)
    return found


def head(summary: Summary) -> tuple[Text, Text]:
    """Return the line on the model, and the one on what it ran on."""
    run, count = summary.recording.run, summary.parameter_count
    flops = None if summary.utilization is None else summary.utilization.flops_per_sample
    of_update = None if summary.utilization is None else summary.utilization.update_flops_per_step
    least = _at_least(summary)
    model = [
        f"{count:,}{'' if run.whole_parameters is None else f' of {run.whole_parameters:,}'} parameters"
        if count
        else None,
        f"{least}{decimal_text(flops, 'FLOP')} a sample" if flops else None,
        *_flops_of_other_units(summary),
        f"{least}{decimal_text(of_update, 'FLOP')} a step in the update" if of_update else None,
    ]
    environment = [
        f"{run.framework} {run.framework_version}".strip(),
        f"{run.device} ({run.device_name})" if run.device_name else run.device,
        f"{run.threads} thread{'s' * (run.threads > 1)}" if run.threads else None,
        f"batch {size:,.0f}" if (size := summary.batch_size) else None,
        None if run.rank is None else f"rank {run.rank} of {run.world_size}",
        summary.precision,
        *(f"{flag(name)} {value}" for name, value in run.options.items() if name in ALL),
    ]
    first = Text.assemble((run.model, "bold"), *(f" · {fact}" for fact in model if fact))
    return first, Text(" · ".join(fact for fact in environment if fact))


def _flops_of_other_units(summary: Summary) -> Iterator[str]:
    run, use = summary.recording.run, summary.utilization
    if use is not None and use.flops_per_step:
        by_unit = {STEPS: use.flops_per_step, **use.flops_per_unit}
        for unit, flops in by_unit.items():
            if unit not in (SAMPLES, run.sample_unit):
                yield f"{_at_least(summary)}{decimal_text(flops, 'FLOP')} {one_of(unit)}"


def _at_least(summary: Summary) -> str:
    """Return what to say before FLOPs: some products have no count where a remark of the hook says so."""
    return "at least " if RemarkOn.KERNEL_COUNTS in summary.recording.missing else ""


def _disturbed(cpu: CpuUtilization) -> RenderableType:
    unsure = "speed, times and the verdict may differ without them"
    return Text(f"other processes took {percent_text(cpu.others)} of the cores: {unsure}", style="yellow")


def _verdict(verdict: Verdict, *, full: bool) -> RenderableType:
    advice = verdict.advice if full else verdict.advice[:1]
    lead = ("try first", *["then"] * len(advice))
    tried = sheet((label, Text(line)) for label, line in zip(lead, advice, strict=False))
    return Group(Text(), Text(verdict.sentence, style="bold"), tried if advice else Text(end=""))


def figures(summary: Summary) -> Iterator[tuple[str, Text]]:
    """Yield the lines of the figures: a label, empty where a line goes on, and the text."""
    if summary.throughput is not None:
        yield from _throughput(summary.throughput)
    yield from _unsteady(summary)
    if summary.cpu is not None:
        yield "CPU utilization", Text(_cpu(summary.cpu))
    if summary.utilization is not None:
        yield from _utilization(summary.utilization, summary.step_time, summary.recording.run)
    if summary.sampled is not None and (sampled := sampled_text.line(summary.sampled)):
        yield "sampled", Text(sampled)
    if summary.step_time is not None and (idle := _idle(summary.step_time.idle)):
        yield "idle", Text(idle)
    if summary.step_time is not None and summary.step_time.communication is not None:
        yield "communication", Text(_communication(summary.step_time.communication))
    if summary.data_wait is not None and summary.data_wait >= LEAST_SHOWN:
        yield "loading", Text(f"the loop waited for batches {percent_text(summary.data_wait)} of a clean step")
    if summary.memory is not None:
        yield from _memory(summary.memory)


def _unsteady(summary: Summary) -> Iterator[tuple[str, Text]]:
    """Return which figures are of few early steps, which do memory no harm, and whether the loop never settled."""
    results = {"throughput": (CLEAN, summary.throughput), "kernels": (KERNELS, summary.step_time)}
    early = summary.early_steps
    of = [f"{what} of {early[name]} steps" for what, (name, found) in results.items() if found and name in early]
    if of:
        said = f"{', '.join(of)}, taken before the time per step was known to be steady"
        yield "rough", Text(said, style="yellow")
    if summary.recording.run.settled is False:
        yield "warm-up", Text("NEVER SETTLED: the figures are those of a run that still changed", style="red")


def _throughput(throughput: Throughput) -> Iterator[tuple[str, Text]]:
    unit, step = throughput.unit, seconds_text(throughput.step_seconds * 1e9)
    yield "throughput", Text(f"{_rate(throughput.rate)} {unit}/s in the clean windows, {step} a step")
    if throughput.others:
        yield "", Text(", ".join(f"{_rate(other.rate)} {other.unit}/s" for other in throughput.others))
    if throughput.samples_from:
        counts = ", ".join(f"{count:,.0f} {unit}" for unit, count in throughput.per_step.items())
        yield "", Text(f"{counts} a step: {throughput.samples_from}")
    for name, share in throughput.padding.items():
        yield "padding", Text(f"{percent_text(share)} of the {name} that were computed; not counted as work")
    if throughput.drifted:
        each = ", ".join(_digits(rate.per_s) for rate in throughput.windows)
        yield "drifted", Text(f"the clean windows disagree: {each} {unit}/s", style="red")


def _rate(rate: Rate) -> str:
    if rate.interval is None:
        return _digits(rate.per_s)
    return f"{_digits(rate.per_s)} [{_digits(rate.interval[0])}, {_digits(rate.interval[1])}]"


def _digits(value: float) -> str:
    """Return four digits, or all digits before the point if there are more."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _cpu(cpu: CpuUtilization) -> str:
    beyond = "" if cpu.affinity_cores == cpu.cores else f" of the {cpu.affinity_cores:g} it may run on"
    ranks = "" if cpu.ranks is None else f"other ranks {percent_text(cpu.ranks)}, "
    return f"{percent_text(cpu.process)} of {cpu.cores:g} cores; {ranks}others {percent_text(cpu.others)}{beyond}"


def _utilization(utilization: Utilization, time: StepTime | None, run: Run) -> Iterator[tuple[str, Text]]:
    yield "device busy", _busy(utilization)
    if time is not None and time.kernel_seconds is not None:
        kind = "operators" if run.device == "cpu" else "kernels"
        yield kind, Text(f"{time.kernels:,.0f} a step, {seconds_text(time.kernel_seconds * 1e9)} on average")
    flop = utilization.flop
    if flop is None:
        return
    if flop.value is not None:
        yield f"{flop.precision.upper()} utilization", _flop(flop, flop.value)
    if flop.at_clock is not None:
        yield "at its clock", Text(_at_clock(flop.at_clock))
    yield "peak", Text(f"{decimal_text(flop.peak_flops_per_s, 'FLOP/s')}: {flop.peak_source}")
    flags = {
        name: value for name, value in run.precision_flags.items() if any(part in name.lower() for part in TF32_FLAGS)
    }
    if flags and run.device.startswith("cuda"):
        yield "TF32", Text(", ".join(f"{name} {value}" for name, value in flags.items()))


def _busy(utilization: Utilization) -> Text:
    inside = f"{percent_text(utilization.busy_in_window)} in the kernels window"
    if utilization.busy is None:
        return Text(inside)
    above = utilization.busy > 1
    mark = " (! kernels took longer while watched)" if above else ""
    return Text(f"{percent_text(utilization.busy)} of a clean step{mark}; {inside}", style="yellow" if above else "")


def _flop(flop: Flop, value: float) -> Text:
    bound = f" → up to {times_text(flop.bound)}" if flop.bound is not None and value <= 1 else ""
    basis = f"{flop.level}, counted in {percent_text(flop.coverage)} of busy time"
    if flop.at_most:
        return Text(f"at most {percent_text(value)} while busy ({basis})\n{AT_MOST}", style="yellow")
    if value > 1 and flop.level != ANALYTIC:
        return Text(f"ERROR: {percent_text(value)} while busy ({basis}): more than the device can do", style="red")
    if value > 1:
        return Text(f"{percent_text(value)} while busy ({basis})\n{ABOVE}", style="yellow")
    return Text(f"{percent_text(value)} while busy{bound} ({basis})")


def _at_clock(found: AtClock) -> str:
    above = MARK if found.value > 1 else ""
    share = f"{percent_text(found.value)}{above} of the peak at the {found.clock_hz / 1e6:.0f} MHz it ran at"
    return f"{share} (the peak above is at {found.peak_clock_hz / 1e6:.0f} MHz)"


def _idle(idle: Idle) -> str:
    shares = {label: getattr(idle, name) for name, label in IDLE.items()}
    parts = sorted(((share, label) for label, share in shares.items() if share and share >= LEAST_SHOWN), reverse=True)
    listed = ", ".join(f"{label} {percent_text(share)}" for share, label in parts)
    return f"{listed} of the step" if listed else ""


def _communication(found: Communication) -> str:
    sent = "" if found.sent_bytes is None else f"{bytes_text(found.sent_bytes)} a step; "
    exposed, hidden = percent_text(found.exposed), percent_text(found.hidden)
    return f"{sent}{exposed} of the step waits for it, {hidden} is hidden behind other work"


def _memory(memory: Memory) -> Iterator[tuple[str, Text]]:
    sizes = sorted(((memory.category_at_peak(name), name) for name in CATEGORIES), reverse=True)
    parts = [
        f"{name.replace('_', ' ')} {percent_text(size / memory.peak_bytes)}"
        for size, name in sizes
        if size > LEAST_SHOWN * memory.peak_bytes
    ]
    yield "memory", Text(f"{bytes_text(memory.peak_bytes)} at the peak" + (f": {', '.join(parts)}" if parts else ""))
    if outside := outside_text(memory):
        yield "elsewhere", Text(outside)


def _unmeasured(summary: Summary) -> RenderableType:
    lines = [f"not measured: {reason} ({', '.join(what)})" for reason, what in unmeasured(summary).items()]
    return Text("\n".join(lines), end="\n" if lines else "")


def _phases(time: StepTime) -> RenderableType:
    step = seconds_text(time.step_seconds * 1e9)
    grid = Table.grid(padding=(0, 2))
    for phase in time.phases:
        if phase.share >= LEAST_SHOWN:
            bar = _bar(phase.busy_seconds / time.step_seconds, phase.share)
            grid.add_row(phase.name, bar, seconds_text(phase.seconds * 1e9), percent_text(phase.share))
    grid.columns[2].justify = grid.columns[3].justify = "right"
    return Group(Text(f"\nA step of {step} in the kernels window, █ busy, ░ idle", style="bold"), grid)


def _bar(busy: float, whole: float) -> Text:
    """Return a bar; a whole step would fill all columns."""
    columns = max(1, round(BAR_COLUMNS * whole))
    filled = min(columns, round(BAR_COLUMNS * busy))
    return Text("█" * filled + "░" * (columns - filled))
