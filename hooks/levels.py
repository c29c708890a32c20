"""Samples of counters: how many bytes of a device a framework's allocator holds at some instants."""

from collections.abc import Iterable, Mapping

from tbdprof.facts.records import Strings
from tbdprof.facts.rows import SampleRow, Table, table

Levels = Mapping[str, int]  # bytes by counter


def samples(read: Iterable[tuple[int, Levels]], device: str, strings: Strings) -> Table:
    """Return levels as samples of a device, each with the `time.monotonic_ns` of its reading."""
    place = strings.add(device)
    rows = [SampleRow(strings.add(name), place, at, size) for at, found in read for name, size in found.items()]
    return table("sample", rows)
