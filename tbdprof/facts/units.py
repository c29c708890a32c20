"""Numbers as people read them: bytes, durations, percentages, FLOPs."""

BINARY_PREFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def bytes_text(count: float) -> str:
    """Return a number of bytes in binary units, exact below 1 KiB: `97.49 MiB`."""
    size = float(count)
    for prefix in BINARY_PREFIXES[:-1]:
        if abs(size) < 1024:
            return f"{size:.0f} B" if not prefix else f"{size:.2f} {prefix}B"
        size /= 1024
    return f"{size:.2f} {BINARY_PREFIXES[-1]}B"


def seconds_text(duration_ns: float) -> str:
    """Return a duration given in nanoseconds, in the unit that keeps it short: `351.20 ms`."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(duration_ns) >= scale:
            return f"{duration_ns / scale:.2f} {unit}"
    return f"{duration_ns:.0f} ns"


def percent_text(fraction: float) -> str:
    """Return a fraction as a percentage: 0.125 is `12.5 %`."""
    return f"{100 * fraction:.1f} %"


def decimal_text(count: float, unit: str) -> str:
    """Return a count of something in decimal units: 24.3e9 of "FLOP" is `24.30 GFLOP`."""
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= scale:
            return f"{count / scale:.2f} {prefix}{unit}"
    return f"{count:.2f} {unit}"


def one_of(unit: str) -> str:
    """Return one of a unit that is given in the plural: an image, a second of audio."""
    head, of, rest = unit.partition(" of ")
    return with_article(f"{head.removesuffix('s')}{of}{rest}")


def with_article(noun: str) -> str:
    """Return a noun behind "a" or "an"."""
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"


def times_text(factor: float) -> str:
    """Return how many times something is something else: `2.3×`."""
    return f"{factor:.1f}×"
