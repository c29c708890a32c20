"""The device's memory from the driver up, and what was live when a run ended out of memory."""

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from tbdprof.facts.units import bytes_text, percent_text
from tbdprof.report.terminal_parts.tables import Column, plain, sheet, title_of
from tbdprof.results.memory import AGREES, TRIED, DeviceMemory, Layer, PostMortem
from tbdprof.results.summary import Summary

LAYERS = (Column("layer", "word"), Column("size"), Column("of the device"), Column("source", "text"))
LIVE = (Column("live", "word"), Column("size"), Column("share"))
NOT_APART = "feature maps and others (separated only in a memory window)"
EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def view(summary: Summary, *, full: bool = False) -> list[RenderableType]:
    """Return the table of the device's memory, empty on a CPU; `full` makes no difference."""
    found = summary.device_memory
    return [] if found is None else [_stack(found)]


def post_mortem(summary: Summary) -> list[RenderableType]:
    """Return the tables about a run that ended out of memory; empty for another run."""
    found = summary.post_mortem
    if found is None:
        return []
    parts: list[RenderableType] = [Text("out of memory", style="bold red"), Text(found.said)]
    parts.append(sheet((label, Text(line)) for label, line in ending(found, summary.missing)))
    return [Group(*parts), *([_live(found)] if found.live else [])]


def _stack(found: DeviceMemory) -> RenderableType:
    total = found.total_bytes
    rows = [(each.name, each.size_bytes, each.source) for each in found.layers]
    if found.unexplained_bytes is not None:
        rows.append(("unexplained", found.unexplained_bytes, "in use as the driver reports it, without the above"))
    if total is not None and found.used_bytes is not None:
        rows.append(("free", total - found.used_bytes, "and what the driver keeps for itself"))
    cells = [(name, bytes_text(size), percent_text(size / total) if total else "", how) for name, size, how in rows]
    title = title_of(f"Memory of {found.device} as a whole, from the bottom")
    return Group(title, plain(LAYERS, cells), *_below(found))


def _below(found: DeviceMemory) -> Iterator[Text]:
    if found.explained is not None and found.used_bytes is not None:
        text = f"the layers are {percent_text(found.explained)} of {bytes_text(found.used_bytes)} in use (NVML)"
        apart = "" if found.agrees else f": more than {percent_text(AGREES)} apart"
        yield Text(text + apart, style="" if found.agrees else "red")
    if found.beneath is not None and found.beneath not in found.layers:
        yield Text(_beneath(found, found.beneath))
    if found.cache_at_end_bytes is not None:
        kept = "" if found.fragments_bytes is None else f", {bytes_text(found.fragments_bytes)} of it in pieces"
        yield Text(f"allocator cache at the end of a step: {bytes_text(found.cache_at_end_bytes)}{kept}")
    if found.private_bytes:
        yield Text(f"reserved for captured graphs and other pools of their own: {bytes_text(found.private_bytes)}")


def _beneath(found: DeviceMemory, here: Layer) -> str:
    """Return a line on context and libraries as measured in the training process and in separate processes."""
    text = f"{here.name}, as measured in this process: {bytes_text(here.size_bytes)} ({here.source})"
    if found.context_bytes is None:
        return text
    return f"{text}; measured apart: {bytes_text(found.context_bytes + (found.libraries_bytes or 0))}"


def ending(found: PostMortem, missing: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the lines on the end of a run that ended out of memory: a label and the text."""
    if found.asked_bytes is not None:
        yield "asked for", bytes_text(found.asked_bytes)
    if found.free_bytes is not None:
        there = "" if found.capacity_bytes is None else f" of {bytes_text(found.capacity_bytes)}"
        yield "free", f"{bytes_text(found.free_bytes)}{there}"
    if found.cache_bytes is not None:
        yield "could be let go", _cache(found)
    if found.is_fragmented:
        yield "fragmented", f"as much was there in pieces: set {EXPANDABLE} before torch is imported"
    yield "a batch that fits", _batch(found, missing)


def _cache(found: PostMortem) -> str:
    pieces = "" if found.fragments_bytes is None else f", {bytes_text(found.fragments_bytes)} more is in pieces"
    size = found.releasable_bytes if found.releasable_bytes is not None else found.cache_bytes
    return f"{bytes_text(size or 0)} of the allocator's cache{pieces}"


def _batch(found: PostMortem, missing: Mapping[str, str]) -> str:
    if found.fitting_batch is None:
        return f"not known: {missing.get('post_mortem.fitting_batch', 'nothing was tried')}"
    if found.found_by != TRIED:
        return f"at most about {found.fitting_batch} of {found.batch_size}: an estimate, by proportion of what was live"
    took = found.peaks.get(found.fitting_batch)
    room = "" if took is None or found.room_bytes is None else f": {bytes_text(took)} of {bytes_text(found.room_bytes)}"
    return f"--batch-size {found.fitting_batch}, tried in a process of its own{room}"


def _live(found: PostMortem) -> RenderableType:
    total = found.live_bytes or 0
    rows = [(name.replace("_", " "), size) for name, size in (found.live or {}).items() if size]
    if found.others_bytes:
        rows.append((NOT_APART, found.others_bytes))
    cells = [(name, bytes_text(size), percent_text(size / total)) for name, size in [*rows, ("total", total)] if total]
    return Group(title_of("What was live when memory ran out"), plain(LIVE, cells))
