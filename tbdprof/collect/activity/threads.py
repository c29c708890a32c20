"""Numbers of this process's threads, of which CUPTI reports a part."""

from collections.abc import Iterable, Iterator
from pathlib import Path

MAPS, MEMORY = Path("/proc/self/maps"), Path("/proc/self/mem")  # reading MEMORY never crashes if MAPS is outdated
_LOW = 32  # bits
_ALIGNED = 8  # bytes: every thread's memory begins at a multiple of this


def whole(lows: Iterable[int], maps: Path = MAPS) -> dict[int, int]:
    """Map the lower 32 bits of each `threading.get_ident()`, which are all that CUPTI reports, to the whole number.

    The whole number is an address in writable memory of the process. If several addresses fit, it is the one at which
    that address itself is stored: on x86-64, glibc's data of a thread begins with it. Otherwise the thread is left out.
    """
    try:
        places = [place for line in maps.read_text().splitlines() if (place := _writable(line)) is not None]
    except OSError:
        return {}
    found = {low: set(_candidates(low, places)) for low in lows if low % _ALIGNED == 0}
    certain = {low: fit if len(fit) == 1 else set(filter(_names_itself, fit)) for low, fit in found.items()}
    return {low: fit.pop() for low, fit in certain.items() if len(fit) == 1}


def _names_itself(address: int) -> bool:
    try:
        with MEMORY.open("rb", buffering=0) as memory:
            memory.seek(address)
            words = memory.read(24)
    except OSError:
        return False
    own = address.to_bytes(8, "little")
    return words[:8] == own == words[16:]


def _writable(line: str) -> tuple[int, int] | None:
    place, _, rest = line.partition(" ")
    first, _, last = place.partition("-")
    return (int(first, 16), int(last, 16)) if rest.startswith("rw") else None


def _candidates(low: int, places: Iterable[tuple[int, int]]) -> Iterator[int]:
    for first, last in places:
        for high in range(first >> _LOW, (last - 1 >> _LOW) + 1):
            if first <= (thread := high << _LOW | low) < last:
                yield thread
