"""How the run was measured, what is violated, and what is missing: whether to trust the rest."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.text import Text

from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.units import percent_text
from tbdprof.facts.windows import WARMUP
from tbdprof.report.terminal_parts.overview import unmeasured
from tbdprof.report.terminal_parts.tables import sheet
from tbdprof.results.summary import Summary
from tbdprof.results.time import Overhead

SETTLED = {True: "settled after", False: "NEVER SETTLED after", None: "not judged:"}


def view(summary: Summary) -> RenderableType:
    """Return the lines on warm-up and on the cost of profiling."""
    return sheet((label, Text(line)) for label, line in rows(summary))


def notes(summary: Summary) -> list[RenderableType]:
    """Return what is wrong with the run, and what else is missing; a reason already given is not repeated."""
    run = summary.recording.run
    broken = [] if run.complete else [f"incomplete: {run.ended_by}"]
    broken += [f"lost: {window}" for window in summary.lost_windows]
    if summary.memory is not None:
        broken += [f"does not hold: {line}" for line in summary.memory.violations]
    if summary.sampled is not None:
        broken += [f"does not hold: {line}" for line in summary.sampled.violations]
    return [*(Text(line, style="red") for line in broken), *map(Text, _missing(summary))]


def rows(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield the lines on how the run was measured: a label and the text."""
    run = summary.recording.run
    warmups = [window.table("step") for window in summary.recording.windows if window.name == WARMUP]
    steps = sum(map(len, warmups))
    if run.settled is not None and warmups and len(warmups[-1]):
        steps = int(warmups[-1]["index"][-1]) + 1  # those of early windows, too
    method = "" if run.settled is None else f" ({run.settled_by})"
    yield "warm-up", f"{SETTLED[run.settled]} {steps} step{'s' * (steps != 1)}{method}"
    drifted = bool(summary.throughput and summary.throughput.drifted)
    if summary.memory_overhead is not None:
        yield "memory window", _cost(summary.memory_overhead, drifted=drifted)
    if summary.kernels_overhead is not None:
        yield "kernels window", _cost(summary.kernels_overhead, drifted=drifted)
    if summary.sampled_overhead is not None:
        yield "sampled window", _cost(summary.sampled_overhead, drifted=drifted)
    if summary.step_time is not None:
        covered = percent_text(summary.step_time.covered)
        whose = "operators'" if summary.recording.run.device == "cpu" else "kernels'"
        yield "covered", f"{whose} own times are {covered} of a step of the kernels window"
    if summary.traced is not None:
        off = f"the device's times may be off by {summary.traced.residual_ns / 1e3:.1f} µs"
        yield "records", f"{summary.traced.lost or 'none'} of kernels and copies lost; {off}"


def _cost(overhead: Overhead, *, drifted: bool) -> str:
    if overhead.interval is None:
        return f"cost {overhead.ratio:.3f} times a clean step (too few blocks for an interval)"
    low, high = overhead.interval
    cost = f"{overhead.ratio:.3f} [{low:.3f}, {high:.3f}] times a clean step"
    if drifted or overhead.is_wide:
        return f"cost is not known: {cost}, {'and the run drifted' if drifted else 'too wide an interval'}"
    if high < 1:
        return f"cost is not known: {cost}: the loop itself got faster"
    return f"cost {cost}{' (not distinguishable from none)' if low <= 1 <= high else ''}"


def _missing(summary: Summary) -> Iterable[str]:
    shown, by_reason = unmeasured(summary), dict[str, list[str]]()
    for name, reason in summary.missing_now.items():
        if reason not in shown:
            by_reason.setdefault(reason, []).append(name)
    # How the hook received its events is a fact of the recording, and nothing that it lacks.
    lacks = {reason: not names[0].startswith(RemarkOn.EVENTS) for reason, names in by_reason.items()}
    return [f"{'missing ' * lacks[reason]}{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
