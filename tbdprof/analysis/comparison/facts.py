"""The facts of the runs: what repeats have in common, what differs between sides, and what makes figures unsure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tbdprof.errors import UsageError
from tbdprof.results.compare import Side
from tbdprof.results.summary import Summary

LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
REPEATED = (  # what recordings of the same thing have in common
    "model",
    "framework",
    "framework version",
    "device",
    "device name",
    "threads",
    "batch",
    "precision",
    "unit",
    "processes",
    "rank",
)
SETTING = ("device", "device name", "batch")  # what a limit on a change takes to be the same
OPTION = "option "


class Run(NamedTuple):
    """A recording's summary, and the name it goes by."""

    name: str
    summary: Summary


def sides_of(groups: Sequence[Sequence[Run]], *, anyway: bool) -> tuple[Side, ...]:
    """Return the sides; raise UsageError for too many or too few, for unlike repeats and, unless `anyway`, models."""
    if not 2 <= len(groups) <= len(LABELS):
        count = f"{len(groups)} recording{'s' * (len(groups) != 1)}"
        raise UsageError(f"{count} to compare: give from 2 to {len(LABELS)}, and join repeats with commas")
    if not anyway:
        for group in groups:
            _refuse_unlike(group)
        _refuse_models(groups)
    return tuple(
        Side(label, tuple(run.name for run in group), facts_of(group[0].summary), tuple(_remarks(label, group)))
        for label, group in zip(LABELS, groups, strict=False)
    )


def _refuse_unlike(group: Sequence[Run]) -> None:
    first, facts = group[0], facts_of(group[0].summary)
    names = [name for name in facts if _is_of_any(name)]
    for run in group[1:]:
        others = facts_of(run.summary)
        for name in (*names, *(name for name in others if name.startswith(OPTION))):
            one, two = facts.get(name, "-"), others.get(name, "-")
            if one != two:
                said = f"{run.name} is no repeat of {first.name}: {name} {two}, not {one}"
                raise UsageError(f"{said}; give them as two sides, or --anyway to pool them")


def _refuse_models(groups: Sequence[Sequence[Run]]) -> None:
    first = groups[0][0]
    for run in (group[0] for group in groups):
        one, two = first.summary.recording.run.model, run.summary.recording.run.model
        if one != two:
            said = f"{first.name} is of {one}, {run.name} of {two}"
            raise UsageError(f"these are different models: {said}; --anyway compares them")


def facts_of(summary: Summary) -> dict[str, str]:
    """Return what is known of a run, as text, by the name of the fact; what is not known is left out."""
    run = summary.recording.run
    batch = summary.batch_size
    found: dict[str, object] = {
        "model": run.model,
        "framework": run.framework,
        "framework version": run.framework_version,
        "device": run.device,
        "device name": run.device_name,
        "threads": run.threads,
        "cores": f"{run.cores:g}" if run.cores else None,
        "batch": None if batch is None else f"{batch:,.0f}",
        "precision": summary.precision,
        "optimizer": ", ".join(dict.fromkeys(each.kind for each in run.optimizers)),
        "parameters": None if summary.parameter_count is None else f"{summary.parameter_count:,}",
        "unit": run.unit,
        "processes": run.world_size,
        "rank": None if run.rank is None else str(run.rank),
        **{f"{OPTION}{name}": value for name, value in run.options.items()},
        **run.precision_flags,
        "tbdprof": run.tbdprof_version,
    }
    return {name: str(value) for name, value in found.items() if value not in (None, "", 0)}


def _remarks(label: str, group: Sequence[Run]) -> Iterator[str]:
    """Yield what makes the figures of a side less sure, and name the recordings where only some are meant."""
    throughputs = {run.name: run.summary.throughput for run in group}
    drifted = [name for name, found in throughputs.items() if found is not None and found.drifted]
    moving = [run.name for run in group if run.summary.recording.run.settled is False]
    for names, said in ((drifted, "drifted: clean windows disagree"), (moving, "never settled before it was measured")):
        if names:
            yield f"{_which(label, names, group)} {said}"
    for run in group:
        if not run.summary.recording.run.complete:
            yield f"{_which(label, [run.name], group)} is not complete: {run.summary.recording.run.ended_by}"
    others = [run.summary.cpu.others for run in group if run.summary.cpu is not None and run.summary.cpu.disturbed]
    if others:
        yield f"{label}: other processes took up to {100 * max(others):.0f} % of the cores"


def _which(label: str, names: Sequence[str], group: Sequence[Run]) -> str:
    if len(group) == 1:
        return label
    return f"{label}: all {len(group)}" if len(names) == len(group) else f"{label}: {', '.join(names)}"


def unsteady(group: Sequence[Run]) -> list[str]:
    """Name the recordings whose clean windows disagree, or that never settled."""
    return [
        run.name
        for run in group
        if (run.summary.throughput is not None and run.summary.throughput.drifted)
        or run.summary.recording.run.settled is False
    ]


def shared(sides: Sequence[Side]) -> dict[str, str]:
    """Return the facts that are the same in all sides."""
    first = sides[0].facts
    return {name: text for name, text in first.items() if all(side.facts.get(name) == text for side in sides)}


def differences(sides: Sequence[Side]) -> dict[str, tuple[str, ...]]:
    """Return the facts that differ, with one text for each side, empty where it is not known."""
    names = dict.fromkeys(name for side in sides for name in side.facts)
    found = {name: tuple(side.facts.get(name, "") for side in sides) for name in names}
    different = {name: texts for name, texts in found.items() if len(set(texts)) > 1}
    if "framework" in different:  # whose settings of precision have names of their own
        return {name: texts for name, texts in different.items() if all(texts) or _is_of_any(name)}
    return different


def _is_of_any(name: str) -> bool:
    return name in REPEATED or name.startswith(OPTION)


def not_alike(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    """Return which facts of two sides' setting differ, in words: `batch 8 and 16`."""
    return tuple(
        f"{name} {one.get(name, 'unknown')} and {other.get(name, 'unknown')}"
        for name in SETTING
        if one.get(name) != other.get(name)
    )
