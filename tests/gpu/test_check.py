"""The order, the limits and the words of the GPU checks, with checks that need no GPU."""

import json
import sys
from pathlib import Path

import psutil
import pytest
from fakes import FakeClock
from gpu import schedule
from gpu.schedule import FAIL, NOT_POSSIBLE, PASS, Check, Result, Verdict

FINE = Verdict(PASS, "as it should be", {"ratio": 1.004, "kernels": ["a"]})


def check(name: str, limit_s: float = 60.0) -> Check:
    return Check(name, limit_s, lambda _: FINE)


def scripted(clock: FakeClock, takes: dict[str, float], asked: list[tuple[str, float]]) -> schedule.Runner:
    def run(each: Check, _folder: Path, limit_s: float) -> Verdict:
        asked.append((each.name, limit_s))
        clock.sleep(takes[each.name])
        return FINE

    return run


def seconds(clock: FakeClock) -> float:
    return clock.now_ns / 1e9


def python(body: str) -> schedule.Runner:
    """Return a runner whose processes run a text; `left` is where the verdict goes."""
    return schedule.in_process(lambda _, left: [sys.executable, "-c", f"left = {str(left)!r}\n{body}"])


def test_checks_run_in_order_and_one_without_time_says_how_to_get_it(tmp_path: Path) -> None:
    clock, asked = FakeClock(), list[tuple[str, float]]()
    runner = scripted(clock, {"a": 30, "b": 67}, asked)

    results = schedule.run_all(
        [check("a"), check("b", 70), check("c")], tmp_path, runner, limit_s=100, clock=lambda: seconds(clock)
    )

    assert asked == [("a", 60.0), ("b", 70.0)], "each has its own limit, and never more than is left"
    assert [each.verdict.state for each in results] == [PASS, PASS, NOT_POSSIBLE]
    assert "--only c" in results[2].verdict.reason
    assert results[1].seconds == 67
    assert not schedule.succeeded(results)


def test_a_limit_is_never_more_than_what_is_left(tmp_path: Path) -> None:
    clock, asked = FakeClock(), list[tuple[str, float]]()
    runner = scripted(clock, {"a": 30, "b": 1}, asked)

    schedule.run_all([check("a"), check("b", 90)], tmp_path, runner, limit_s=100, clock=lambda: seconds(clock))

    assert asked[1] == ("b", 70.0)


def test_a_process_leaves_its_verdict(tmp_path: Path) -> None:
    written = '{"state": "fail", "reason": "3 mismatches", "figures": {"mismatches": 3}}'

    verdict = python(f"open(left, 'w').write({written!r})")(check("a"), tmp_path, 20)

    assert verdict == Verdict(FAIL, "3 mismatches", {"mismatches": 3})


def test_a_process_knows_how_long_it_may_take(tmp_path: Path) -> None:
    body = f"""
import json, os
json.dump({{"state": "pass", "reason": os.environ[{schedule.LIMIT!r}]}}, open(left, "w"))
"""

    assert python(body)(check("a"), tmp_path, 20).reason == "20"


def test_a_process_that_dies_or_hangs_fails_alone_with_its_last_words(tmp_path: Path) -> None:
    died = python("import os; print('cuDNN is unhappy', flush=True); os.abort()")(check("a"), tmp_path, 20)
    hung = python("import time; print('waiting', flush=True); time.sleep(60)")(check("b"), tmp_path, 1)

    assert (died.state, died.figures["last words"]) == (FAIL, "cuDNN is unhappy")
    assert "ended with -6" in died.reason
    assert (hung.state, hung.reason, hung.figures) == (FAIL, "it was not done after 1 s", {"last words": "waiting"})


def test_what_a_process_that_hangs_has_started_in_another_session_is_ended_too(tmp_path: Path) -> None:
    hangs = """
import subprocess, sys, time
started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print(started.pid, flush=True)
time.sleep(60)
"""

    hung = python(hangs)(check("a"), tmp_path, 2)

    process = int(hung.figures["last words"])
    assert not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE


def test_figures_become_what_json_has(tmp_path: Path) -> None:
    figures = {1: float("nan"), "path": Path("/x"), "pair": (1.5, float("inf"))}

    schedule.leave(Verdict(PASS, "so", figures), tmp_path / "a.json")

    assert json.loads((tmp_path / "a.json").read_text())["figures"] == {"1": None, "path": "/x", "pair": [1.5, None]}


def test_an_old_verdict_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "a.verdict.json").write_text('{"state": "pass", "reason": "old"}')

    assert python("pass")(check("a"), tmp_path, 20).state == FAIL


def test_results_are_kept_after_every_check_and_a_later_call_replaces_its_own(tmp_path: Path) -> None:
    schedule.keep(tmp_path, [Result("a", Verdict(FAIL, "bad"), 1.0), Result("b", FINE, 2.0)])

    schedule.keep(tmp_path, [Result("a", FINE, 3.0)])

    rows = {row["name"]: row["verdict"]["state"] for row in json.loads((tmp_path / "results.json").read_text())}
    assert rows == {"a": PASS, "b": PASS}
    assert schedule.succeeded(schedule.load(tmp_path / "results.json"))
    text = (tmp_path / "results.txt").read_text()
    assert "pass         a (3 s): as it should be" in text
    assert "    ratio: 1.004" in text
    assert text.endswith("2 pass, 0 fail, 0 not possible\n")


def test_checks_are_chosen_by_what_their_names_begin_with() -> None:
    checks = [check("resnet50-fp32-32"), check("resnet50-bf16-32"), check("energy")]

    assert [each.name for each in schedule.chosen(checks, ())] == [each.name for each in checks]
    assert [each.name for each in schedule.chosen(checks, ("resnet50-fp32", "energy"))] == [
        "resnet50-fp32-32",
        "energy",
    ]
    with pytest.raises(ValueError, match="no check is called busy"):
        schedule.chosen(checks, ("busy",))


def test_a_verdict_names_what_does_not_hold() -> None:
    assert schedule.judged("a", {"x": True, "y": True}, {}).state == PASS
    found = schedule.judged("a", {"x": True, "y": False, "z": False}, {"n": 1})
    assert (found.state, found.reason) == (FAIL, "a; does not hold: y, z")


def test_nothing_done_is_no_success() -> None:
    assert not schedule.succeeded([])
