"""Foretells which size fills the memory, from what smaller ones took."""

from collections.abc import Mapping


def size_that_fills(took_bytes: Mapping[int, int], room_bytes: float) -> int | None:
    """Return the size at which the line through the two largest sizes meets the memory that there is, rounded.

    The result is None if there are not two sizes, or if the larger one took no more than the other.
    """
    (small, first), (large, last) = [(0, 0), (0, 0), *sorted(took_bytes.items())][-2:]
    if not small or last <= first:
        return None
    return large + int((room_bytes - last) * (large - small) / (last - first))
