"""Tables V and VI of the TBD paper for any program: the longest kernels whose utilization is below the average."""

from collections.abc import Iterator, Mapping

from tbdprof.facts.units import percent_text
from tbdprof.results.sweep import Sweep, SweepPoint, settings_text

MOST = 5
HEADER = ("program", "batch", "duration", "utilization", "kernel")


def chosen(sweep: Sweep) -> Mapping[str, SweepPoint]:
    """Return for each program the point with the largest batch that finished."""
    found: dict[str, SweepPoint] = {}
    for point in sweep.points:
        others = {name: value for name, value in point.settings.items() if name != sweep.batch}
        label = " ".join(settings_text(others)) or sweep.title
        if point.figures is not None and (
            label not in found or int(point.settings[sweep.batch]) > int(found[label].settings[sweep.batch])
        ):
            found[label] = point
    return found


def markdown(label: str, point: SweepPoint, batch: str) -> str:
    """Return the table as Markdown, with its caption."""
    title = f"Longest {MOST} kernels with FP32 utilization below the average ({label}, batch {point.settings[batch]})"
    lines = ["| duration | utilization | kernel |", "|---:|---:|---|"]
    for _, _, share, used, name in rows(label, point, batch):
        shown = "" if used is None else percent_text(used)
        lines.append(f"| {percent_text(share)} | {shown} | `{name.replace('`', '').replace('|', '¦')}` |")
    return "\n".join([f"**{title}**", "", *lines]) if len(lines) > 2 else f"**{title}**: none"


def rows(label: str, point: SweepPoint, batch: str) -> Iterator[tuple[str, str | int, float, float | None, str]]:
    """Yield the cells of each row; shares are fractions."""
    low = None if point.figures is None else point.figures.low_utilization
    for group in () if low is None else low.rows[:MOST]:
        yield label, point.settings[batch], group.share, group.utilization, group.name
