"""The benchmark's figures and exit code, with timings that are made up."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import overhead
from cost.figures import AGAIN, BARE, SETTINGS, WAITING, Ratio, Stretch, ratio, rows
from cost.processes import PEERS, RUNS_AHEAD, BenchmarkError
from cost.waits import Waits

from tbdprof.results.time import Overhead


def cycles(framework, count=10, **ratios):
    """Return cycles in which every arm takes as long as a bare step, but for those given."""
    arms = [BARE, AGAIN, SETTINGS, "clean", "memory", "kernels", *PEERS[framework]]
    arms += [WAITING] if framework in RUNS_AHEAD else []
    found = []
    for each in range(count):
        bare_s = 0.1 * (1 + each % 3)
        found.append({arm: stretch(bare_s * ratios.get(arm, 1.0), arm) for arm in arms})
    return found


def stretch(seconds, arm):
    return Stretch(seconds, 2 * seconds, 1000.0 if arm == "memory" else None)


def code(made, *arguments):
    return overhead.main([*arguments, "--no-runs"], lambda framework, *_: made(framework))


def test_a_ratio_is_the_mean_of_the_cycles_own_ratios():
    assert ratio([2.0, 30.0], [1.0, 10.0]).mean == 2.5
    low, high = ratio([1.0, 1.2, 1.1, 1.3], [1.0] * 4).interval
    assert 1.0 <= low < 1.15 < high <= 1.3


def test_a_bound_is_kept_until_the_whole_interval_lies_above():
    assert Ratio(1.04, (1.03, 1.05)).is_within(1.03)
    assert not Ratio(1.04, (1.031, 1.05)).is_within(1.03)
    assert not Ratio(1.04, None).is_within(1.03)


def test_an_event_costs_the_cpu_time_that_its_steps_take_longer():
    made = cycles("torch", memory=1.5)
    row = next(
        each
        for each in rows("torch", {arm: [cycle[arm] for cycle in made] for arm in made[0]}, is_judged=True)
        if (each.arm, each.over) == ("memory", BARE)
    )
    mean_bare_cpu_s = sum(2 * cycle[BARE].wall_s for cycle in made) / len(made)
    assert row.us_per_event == pytest.approx(0.5 * mean_bare_cpu_s / 1000 * 1e6)


@pytest.mark.parametrize(
    ("framework", "arm", "most"),
    [("torch", "clean", 1.005), ("torch", "memory", 1.03), ("mxnet", "kernels", 1.03), ("tensorflow", "memory", 1.05)],
)
def test_the_exit_code_says_whether_a_window_is_above_its_bound(framework, arm, most, capsys):
    assert code(lambda name: cycles(name, **{arm: most - 0.001}), framework, "--size=0.2s") == 0
    assert code(lambda name: cycles(name, **{arm: most + 0.001}), framework, "--size=0.2s") == 1
    assert f"{framework}, 0.2s, {arm}" in capsys.readouterr().err


def test_steps_of_five_milliseconds_are_told_and_not_judged():
    assert code(lambda name: cycles(name, memory=2.0), "torch", "--size=5ms") == 0
    assert code(lambda name: cycles(name, memory=2.0), "torch", "--size=5ms", "--size=0.2s") == 1


def test_what_a_loop_loses_by_waiting_is_told_apart():
    made = cycles("mxnet", waiting=1.2, kernels=1.32)
    found = rows("mxnet", {arm: [cycle[arm] for cycle in made] for arm in made[0]}, is_judged=True)
    means = {(row.arm, row.over): (row.wall.mean, row.is_within) for row in found}
    assert means[WAITING, BARE] == (pytest.approx(1.2), True)
    assert means["kernels", WAITING] == (pytest.approx(1.1), True)
    assert means["kernels", BARE] == (pytest.approx(1.32), False)  # the bound is over steps that do not wait
    assert ("clean", WAITING) not in means


def test_what_tensorflows_allocator_costs_is_told_apart():
    slower = dict.fromkeys((SETTINGS, "clean", "memory", "kernels"), 1.2)
    assert code(lambda name: cycles(name, **slower), "tensorflow", "--size=1.2s") == 0
    assert code(lambda name: cycles(name, **slower), "torch", "--size=1.2s") == 1


def test_noise_about_a_bound_is_not_taken_for_a_violation():
    made = cycles("torch", count=30)
    for each, cycle in enumerate(made):
        bare_s = cycle[BARE].wall_s
        cycle["memory"] = stretch(bare_s * (1.2 if each % 2 else 0.9), "memory")  # 1.05 on average
    assert code(lambda _: made, "torch", "--size=0.2s") == 0


def test_json_has_every_row_and_the_report_s_own_estimate(tmp_path, capsys):
    waited = Waits(3.0, 10.0, 2.0, {"memory": Overhead(1.1, (1.0, 1.2)), "kernels": None})
    path = tmp_path / "cost.json"

    arguments = ["torch", "--size=0.2s", f"--json={path}"]
    assert overhead.main(arguments, lambda *_: cycles("torch", memory=1.2), lambda *_: waited) == 1

    (found,) = json.loads(path.read_text())
    of_memory = next(row for row in found["rows"] if (row["arm"], row["over"]) == ("memory", BARE))
    assert of_memory["wall"]["ratio"] == pytest.approx(1.2)
    assert (of_memory["bound"], of_memory["is_within"]) == (1.03, False)
    assert found["run"]["own_estimate"] == {"memory": {"ratio": 1.1, "ci95": [1.0, 1.2]}, "kernels": None}
    assert "2.0 s from the last step" in capsys.readouterr().out


def test_a_process_that_fails_is_named_and_is_no_verdict(capsys):
    def fail(*_):
        raise BenchmarkError("the process that times 'memory' ended")

    assert overhead.main(["torch"], fail) == 2
    assert "'memory' ended" in capsys.readouterr().err
