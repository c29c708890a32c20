"""What a framework's allocator holds of a device at some instants, as samples of its counters."""

from collections.abc import Iterable, Mapping

from tbdprof.facts.records import Strings, Table, table

Levels = Mapping[str, int]  # bytes by counter


def samples(read: Iterable[tuple[int, Levels]], device: str, strings: Strings) -> Table:
    """Return levels, each with the `time.monotonic_ns` it was read at, as samples of a device."""
    place = strings.add(device)
    return table("sample", [(strings.add(name), place, at, size) for at, found in read for name, size in found.items()])
