"""Convert the wall clock, which the frameworks' profilers use, to the clock of a recording."""

import time

_READINGS = 50


def wall_offset_ns() -> int:
    """Return the wall clock minus `time.monotonic_ns`, taken from the quickest of several readings."""

    def reading() -> tuple[int, int]:
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        return after - before, wall - (before + after) // 2

    return min(reading() for _ in range(_READINGS))[1]
