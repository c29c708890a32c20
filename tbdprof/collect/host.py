"""The host: its processor, the cores and memory that this process may use, and the CPU time that the system counted."""

import os
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

CPU_INFO = Path("/proc/cpuinfo")
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def processor_name(cpu_info: Path = CPU_INFO) -> str | None:
    """Return the processor's model name, or None if the operating system does not report it."""
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def affinity_cores() -> int:
    """Return how many cores this process may run on."""
    return len(psutil.Process().cpu_affinity() or ()) or os.cpu_count() or 1


def usable_cores(root: Path = CGROUPS, own: Path = OWN_CGROUPS) -> float:
    """Return how many cores this process may use: its affinity, or a control group's quota if that is smaller."""
    quotas = [_v2_quota(text) for text in _settings(root, own, "", "cpu.max")]
    periods = _settings(root, own, "cpu", "cpu.cfs_period_us")
    for quota, period in zip(_settings(root, own, "cpu", "cpu.cfs_quota_us"), periods, strict=False):
        quotas.append(int(quota) / int(period) if int(quota) > 0 else None)
    return min([float(affinity_cores()), *(quota for quota in quotas if quota is not None)])


def _v2_quota(text: str) -> float | None:
    quota, _, period = text.partition(" ")
    return None if quota == "max" else int(quota) / int(period)


def memory_limit_bytes(root: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int | None:
    """Return the smallest memory limit of this process's control groups, or None if none is set."""
    texts = [*_settings(root, own, "", "memory.max"), *_settings(root, own, "memory", "memory.limit_in_bytes")]
    limits = [int(text) for text in texts if text != "max"]
    return min((limit for limit in limits if limit < psutil.virtual_memory().total), default=None)


def available_memory_bytes() -> int:
    """Return how much more memory this process may take, limited by machine, control groups and address space."""
    memory = psutil.Process().memory_info()
    rooms = [psutil.virtual_memory().available]
    limit = memory_limit_bytes()
    if limit is not None:
        rooms.append(limit - memory.rss)
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        rooms.append(soft - memory.vms)
    return max(0, int(min(rooms)))


def _settings(root: Path, own: Path, controller: str, name: str) -> Iterator[str]:
    """Yield a setting of this process's control groups, from its own upward; controller "" means version 2."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in lines:
        if controller not in controllers.split(","):
            continue
        base = root / controller
        below = Path(path.lstrip("/"))
        for folder in (base / below, *(base / parent for parent in below.parents)):
            try:
                yield (folder / name).read_text().strip()
            except OSError:
                continue


def process_cpu_seconds() -> float:
    """Return the CPU time spent so far by this process and all its children, including those that ended."""
    me = psutil.Process()
    return _spent((me, *me.children(recursive=True)))


def siblings_cpu_seconds() -> float:
    """Return the CPU time spent so far by the other children of this process's parent, and by theirs.

    Of processes that train together these are the other ranks on this machine. It is 0 where the parent is the first
    process, which takes over whatever has lost its own parent.
    """
    me = psutil.Process()
    parent = me.parent()
    if parent is None or parent.pid == 1:
        return 0.0
    own = {me.pid, *(process.pid for process in me.children(recursive=True))}
    return _spent(process for process in parent.children(recursive=True) if process.pid not in own)


def _spent(processes: Iterable[psutil.Process]) -> float:
    """Return the CPU time of processes and of their ended children."""
    spent = 0.0
    for process in processes:
        try:
            spent += sum(process.cpu_times()[:4])  # its own user and system time, and that of its ended children
        except psutil.Error:  # it ended meanwhile
            continue
    return spent


def machine_busy_cpu_seconds() -> float:
    """Return how long the cores that this process may run on were busy so far, with any process."""
    cores = psutil.Process().cpu_affinity() or range(os.cpu_count() or 1)
    every = psutil.cpu_times(percpu=True)
    return sum(_busy(every[core]._asdict()) for core in cores if core < len(every))


def _busy(times: dict[str, float]) -> float:
    idle = {"idle", "iowait", "guest", "guest_nice"}  # guests are already counted in user time
    return sum(seconds for name, seconds in times.items() if name not in idle)
