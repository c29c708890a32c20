"""What the host reports, against files and processes made for it."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tbdprof.collect import host

BURN = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


def test_the_time_of_processes_that_ended_stays_counted():
    before = host.process_cpu_seconds()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    after = host.process_cpu_seconds()

    assert after - before >= 0.3


def test_the_time_of_processes_that_live_is_counted():
    before = host.process_cpu_seconds()
    ready = f"{BURN}\nprint('done', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", ready], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        after = host.process_cpu_seconds()
        child.communicate(b"\n")

    assert after - before >= 0.3


def test_the_time_of_siblings_is_none_of_this_process():
    first = f"{BURN}\nprint(flush=True); input()"
    second = f"from tbdprof.collect import host\n{BURN}\nprint(host.siblings_cpu_seconds(), flush=True)"
    parent = f"""
import subprocess, sys
with subprocess.Popen([sys.executable, "-c", {first!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
    first.stdout.readline()
    subprocess.run([sys.executable, "-c", {second!r}], check=True)
    first.stdin.close()
"""
    done = subprocess.run([sys.executable, "-c", parent], check=True, capture_output=True, text=True)

    assert 0.3 <= float(done.stdout) < 0.5


def test_the_machine_is_busy_at_least_as_long_as_this_process_keeps_it():
    before = host.machine_busy_cpu_seconds()
    subprocess.run([sys.executable, "-c", BURN], check=True)

    assert host.machine_busy_cpu_seconds() - before >= 0.2  # the kernel counts in hundredths


def groups(tmp_path: Path, own: str, files: dict[str, str]) -> dict[str, Path]:
    (tmp_path / "cgroup").write_text(own)
    for name, text in files.items():
        path = tmp_path / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return {"root": tmp_path / "sys", "own": tmp_path / "cgroup"}


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "50000 100000"}, 0.5),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "25000 100000"}, 0.25),
        ("4:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "75000", "cpu/a/cpu.cfs_period_us": "100000"}, 0.75),
        ("4:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("0::/\n", {"cpu.max": "max 100000"}, None),
        ("", {}, None),
    ],
)
def test_cores_are_those_of_the_affinity_or_of_a_smaller_quota(
    tmp_path: Path, own: str, files: dict[str, str], quota: float | None
):
    cores = host.usable_cores(**groups(tmp_path, own, files))

    assert cores == (quota if quota is not None else host.affinity_cores())


def test_memory_is_limited_by_the_smallest_of_the_groups_around(tmp_path: Path):
    files = {"a/b/memory.max": "max", "a/memory.max": "1000000", "memory.max": "2000000"}

    assert host.memory_limit_bytes(**groups(tmp_path, "0::/a/b\n", files)) == 1_000_000


def test_a_limit_beyond_the_machines_memory_is_none(tmp_path: Path):
    files = {"memory/memory.limit_in_bytes": str(psutil.virtual_memory().total * 2)}

    assert host.memory_limit_bytes(**groups(tmp_path, "9:memory:/\n", files)) is None


def test_what_is_available_is_no_more_than_what_the_machine_has():
    assert 0 < host.available_memory_bytes() < psutil.virtual_memory().total


def test_the_processor_has_the_name_the_kernel_reports(tmp_path: Path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Abacus 3000\n")

    assert host.processor_name(tmp_path / "cpuinfo") == "Abacus 3000"
    assert host.processor_name(tmp_path / "nothing") is None
