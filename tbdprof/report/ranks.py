"""The report of several recordings: a row for each rank, who is the slowest, and who waits for it."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.console import Group
from rich.text import Text

from tbdprof.errors import visible
from tbdprof.facts.units import bytes_text, seconds_text
from tbdprof.report.json_text import json_text
from tbdprof.report.plain import plain
from tbdprof.report.terminal_parts.tables import Column, filled, printed
from tbdprof.results.ranks import RankFigures, Ranks

SCHEMA = 1
MOST_NAMED = 3  # ranks that wait, in the sentence about them
COLUMNS = (
    Column("", "word"),
    Column("device", "word"),
    Column("clean step"),
    Column("own time"),
    Column("waits"),
    Column("hidden"),
    Column("sent"),
    Column("peak memory"),
    Column("not complete", "text"),
)
BELOW = (
    "own time and waits (communication that runs alone) make up a step of the kernels windows;",
    "hidden is communication that runs beside other work; all of it per step",
)


def render(ranks: Ranks, names: Sequence[str], *, width: int | None = None, color: bool = False) -> str:
    """Return the report as text; `names` are those of the recordings, in the order of `ranks`."""
    ranks = plain(ranks)
    named = zip(ranks.ranks, names, strict=True)
    labels = [visible(name) if ranks.world_size is None else f"rank {each.rank}" for each, name in named]
    several = len({each.device for each in ranks.ranks}) > 1
    rows = [_row(each, label, several=several) for each, label in zip(ranks.ranks, labels, strict=True)]
    title = f"{len(rows)} recordings" if ranks.world_size is None else f"{len(rows)} of {ranks.world_size} ranks"
    lines = [Text(line) for line in _sentences(ranks, labels)]
    below = BELOW if any(each.own_seconds is not None for each in ranks.ranks) else ()
    return printed(Group(filled(title, COLUMNS, rows, below=below), Text(), *lines), width=width, color=color)


def render_json(ranks: Ranks, names: Sequence[str]) -> str:
    """Return the report as one JSON object, with the recordings in the order of `ranks`; docs/json.md describes it."""
    rows = [{"file": name, **asdict(each)} for each, name in zip(ranks.ranks, names, strict=True)]
    waits = [{"rank": ranks.ranks[each.place].rank, "seconds": each.seconds} for each in ranks.waits]
    return json_text(
        {
            "schema": SCHEMA,
            "world_size": ranks.world_size,
            "ranks": rows,
            "absent": ranks.absent,
            "slowest": None if ranks.slowest is None else ranks.ranks[ranks.slowest].rank,
            "lead_seconds": ranks.lead_seconds,
            "waits": waits,
            "missing": ranks.missing,
        }
    )


def _row(figures: RankFigures, label: str, *, several: bool) -> tuple[str, ...]:
    times = (figures.clean_step_seconds, figures.own_seconds, figures.exposed_seconds, figures.hidden_seconds)
    sizes = (figures.sent_bytes, figures.peak_bytes)
    return (
        label,
        figures.device if several else "",
        *("" if each is None else seconds_text(each * 1e9) for each in times),
        *("" if each is None else bytes_text(each) for each in sizes),
        figures.ended_by,
    )


def _sentences(ranks: Ranks, labels: Sequence[str]) -> Iterator[str]:
    if ranks.slowest is None:
        yield f"no slowest rank: {'; '.join(ranks.missing.values())}"
    else:
        waiting = [f"{labels[each.place]} ({seconds_text(each.seconds * 1e9)} a step)" for each in ranks.waits]
        others = f" and {len(waiting) - MOST_NAMED} more" if len(waiting) > MOST_NAMED else ""
        wait = f"; for it {'wait' if len(waiting) > 1 else 'waits'} {', '.join(waiting[:MOST_NAMED])}{others}"
        lead = seconds_text((ranks.lead_seconds or 0.0) * 1e9)
        slowest = f"the slowest is {labels[ranks.slowest]}, by {lead} of its own time a step"
        yield slowest + (wait if waiting else "")
    peaks = [(each.peak_bytes, label) for each, label in zip(ranks.ranks, labels, strict=True) if each.peak_bytes]
    if len(peaks) > 1 and (least := min(peaks))[0] < (most := max(peaks))[0]:
        yield f"memory at the peak: from {bytes_text(least[0])} ({least[1]}) to {bytes_text(most[0])} ({most[1]})"
    if ranks.absent:
        named = ", ".join(map(str, ranks.absent[:10])) + (" …" if len(ranks.absent) > 10 else "")
        yield f"not among these: rank {named} of {ranks.world_size}"
