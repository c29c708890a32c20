"""CPU time of this process, of the processes it started, and of the machine, as the kernel counts it."""

import os
import resource
from pathlib import Path

import psutil

CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota_file: Path = CGROUP_QUOTA) -> float:
    """Return how many cores this process may use: its affinity, less where a control group's quota is smaller."""
    affinity = float(len(psutil.Process().cpu_affinity() or ()) or os.cpu_count() or 1)
    try:
        quota, period = quota_file.read_text().split()
    except (OSError, ValueError):
        return affinity
    return affinity if quota == "max" else min(affinity, int(quota) / int(period))


def process_cpu_seconds() -> float:
    """Return the CPU time spent so far by this process and the living processes below it."""
    spent = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it ended meanwhile
            continue
        spent += times.user + times.system
    return spent


def machine_busy_cpu_seconds() -> float:
    """Return the time the cores this process may run on were busy so far, whoever kept them busy."""
    cores = psutil.Process().cpu_affinity() or range(os.cpu_count() or 1)
    every = psutil.cpu_times(percpu=True)
    return sum(_busy(every[core]._asdict()) for core in cores if core < len(every))


def _busy(times: dict[str, float]) -> float:
    idle = {"idle", "iowait", "guest", "guest_nice"}  # guests are counted in user time already
    return sum(seconds for name, seconds in times.items() if name not in idle)


def available_memory_bytes() -> int:
    """Return how much memory this process may still take: what the machine has free, within its address-space limit."""
    free = psutil.virtual_memory().available
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return int(free)
    return int(min(free, max(0, soft - psutil.Process().memory_info().vms)))
