"""The host's memory: what this process used of it, and whom the system ended because there was none left."""

import resource
from pathlib import Path

from tbdprof.collect import host

_STATUS = Path("/proc/self/status")
_STATISTICS = Path("/proc/vmstat")


class HostUse:
    """The memory that was available when this was created, and the most that this process used since.

    Where the address space is limited (`ulimit -v`), addresses count, and otherwise what is resident.
    """

    def __init__(self) -> None:
        self.counts_addresses = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        self._peak, self._now = ("VmPeak", "VmSize") if self.counts_addresses else ("VmHWM", "VmRSS")
        self._before = _status_bytes(self._now)
        self.room_bytes = host.available_memory_bytes()

    def taken_bytes(self) -> int:
        """Return the most bytes that were used since."""
        return _status_bytes(self._peak) - self._before


def _status_bytes(name: str) -> int:
    """Return one of the operating system's figures of this process's memory."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def killed_for_memory() -> int:
    """Return how many processes the system has ended so far because memory was full; 0 if it does not say."""
    try:
        lines = _STATISTICS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
