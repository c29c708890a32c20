"""How long threads waited for a core: worked out by hand on made-up files, and seen of a process that shares a core."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tbdprof.collect.core_waits import CoreWaits
from tbdprof.collect.host_load import HostLoad
from tbdprof.facts.records import Strings

SPIN = "import time; end = time.monotonic() + {}\nwhile time.monotonic() < end: pass"
SHARE = f"""
import os, subprocess, sys
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
from tbdprof.collect.core_waits import CoreWaits
waits = CoreWaits(); waits.begin()
other = subprocess.Popen([sys.executable, "-c", {SPIN.format(1.5)!r}])
{SPIN.format(0.6)}
waits.end(); print(waits()); other.kill()
"""


def write(tasks: Path, **times: tuple[int, int]) -> None:
    for name, (ran, waited) in times.items():
        (tasks / name).mkdir(exist_ok=True)
        (tasks / name / "schedstat").write_text(f"{ran} {waited} 7\n")


def test_the_waits_of_threads_count_by_the_time_that_they_ran(tmp_path: Path) -> None:
    waits = CoreWaits(tmp_path)
    write(tmp_path, main=(5_000_000_000, 1_000_000_000), idle=(0, 9_000_000_000))
    waits.begin()

    write(tmp_path, main=(8_000_000_000, 2_000_000_000), idle=(0, 11_000_000_000))
    waits.end()
    assert waits() == pytest.approx(1.0)

    write(tmp_path, main=(8_000_000_000, 2_400_000_000), idle=(0, 11_000_000_000))  # between blocks
    waits.begin()
    write(tmp_path, main=(9_000_000_000, 2_900_000_000), idle=(0, 11_000_000_000), new=(1_000_000_000, 1_500_000_000))
    waits.end()
    assert waits() == pytest.approx(1.0 + (1 * 0.5 + 1 * 1.5) / 2)


def test_where_the_kernel_does_not_count_nothing_is_waited(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    waits = CoreWaits(tmp_path)
    waits.begin()
    waits.end()

    assert waits() == 0.0


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count waits")
def test_a_process_that_shares_its_core_is_seen_to_wait() -> None:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-c", SHARE], capture_output=True, text=True, check=True, env=environment)

    assert 0.1 < float(done.stdout) < 0.7


def test_what_it_takes_to_read_one_counter_is_not_in_the_window_of_the_next() -> None:
    now = [0]

    def slow() -> float:
        now[0] += 5_000_000_000
        return 0.0

    load = HostLoad({"slow": slow, "quick": lambda: now[0] / 1e9}, lambda: now[0])
    load.start("clean")
    now[0] += 1_000_000_000
    load.stop()

    strings = Strings()
    rows = load.drain(strings).tables["sample"]
    quick = rows[rows["counter"] == strings.find("quick")]
    assert [*quick["time_ns"]] == [5_000_000_000, 6_000_000_000]
