"""What was measured, as a table for a terminal and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from cost.figures import Ratio, Row
from cost.waits import Waits
from tbdprof.results.time import Overhead


@dataclass(frozen=True, slots=True)
class Result:
    """One framework at one size."""

    framework: str
    size: str
    about: str
    cycles: int
    bare_s: float  # wall time of a bare step
    rows: Sequence[Row]
    waits: Waits | None  # None: left out

    @property
    def above(self) -> list[Row]:
        """Return the rows that are above their bounds."""
        return [row for row in self.rows if not row.is_within]


def table(result: Result) -> Table:
    """Return the table of a result."""
    title = f"{result.framework}, {result.about}: {1e3 * result.bare_s:.1f} ms a bare step, {result.cycles} cycles"
    made = Table(title=title, title_justify="left")
    for name in ("", "over", "wall time", "CPU time", "events a step", "µs an event", "bound"):
        made.add_column(name, justify="left" if name in ("", "over") else "right")
    for row in result.rows:
        verdict = "" if row.bound is None else f"{row.bound} {'kept' if row.is_within else 'ABOVE'}"
        events = "" if row.events is None else f"{row.events:.0f}"
        each = "" if row.us_per_event is None else f"{row.us_per_event:.2f}"
        made.add_row(row.arm, row.over, _ratio(row.wall), _ratio(row.cpu), events, each, verdict)
    return made


def waiting(waits: Waits) -> list[str]:
    """Return lines about one run of the command."""
    own = [f"{name} {_overhead(each)}" for name, each in waits.own.items()]
    return [
        f"tbdprof run: {waits.to_first_step_s:.1f} s to the first step, {waits.steps_s:.1f} s of steps, "
        f"{waits.to_report_s:.1f} s from the last step to the end",
        f"its report's own estimate, over clean windows: {', '.join(own)}",
    ]


def document(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return the results as JSON holds them; times in seconds, the cost of an event in microseconds of CPU time."""
    return [
        {
            "framework": each.framework,
            "size": each.size,
            "about": each.about,
            "cycles": each.cycles,
            "bare_step_s": each.bare_s,
            "rows": [_row(row) for row in each.rows],
            "run": None if each.waits is None else _waits(each.waits),
        }
        for each in results
    ]


def _row(row: Row) -> dict[str, Any]:
    return {
        "arm": row.arm,
        "over": row.over,
        "wall": _both(row.wall),
        "cpu": _both(row.cpu),
        "events_per_step": row.events,
        "cpu_us_per_event": row.us_per_event,
        "bound": row.bound,
        "is_within": row.is_within,
    }


def _waits(waits: Waits) -> dict[str, Any]:
    own = {
        name: None if each is None else {"ratio": each.ratio, "ci95": each.interval} for name, each in waits.own.items()
    }
    return {
        "to_first_step_s": waits.to_first_step_s,
        "steps_s": waits.steps_s,
        "to_report_s": waits.to_report_s,
        "own_estimate": own,
    }


def _both(ratio: Ratio) -> dict[str, Any]:
    return {"ratio": ratio.mean, "ci95": ratio.interval}


def _ratio(ratio: Ratio) -> str:
    return (
        f"{ratio.mean:.3f}"
        if ratio.interval is None
        else f"{ratio.mean:.3f} [{ratio.interval[0]:.3f}, {ratio.interval[1]:.3f}]"
    )


def _overhead(found: Overhead | None) -> str:
    return "none" if found is None else _ratio(Ratio(found.ratio, found.interval))
