"""Runs on a crowded CPU, compared without the time in which their threads waited for a core."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make import run, timed_window

from tbdprof.analysis.comparison.files import compare
from tbdprof.analysis.comparison.gate import judge
from tbdprof.analysis.comparison.limits import parse
from tbdprof.analysis.summary import summarize
from tbdprof.facts.counters import WAITED_FOR_CORE
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Strings
from tbdprof.facts.rows import SampleRow, table
from tbdprof.report.compare import render
from tbdprof.results.compare import BETWEEN, BROKEN, FREED, NO_DIFFERENCE, SLOWER
from tbdprof.results.summary import Summary
from tbdprof.results.time import CpuUtilization

FIXTURE = Path(__file__).parents[1] / "fixtures" / "step_times_and_waits.json"
Window = tuple[list[float], float]
WAITS = (0.01, 0.05, 0.08, 0.03, 0.02, 0.06)  # seconds of each run's steps, beside 0.1 of training
VARIED = (1.0, 1.0, 1.01, 1.01, 0.99, 0.99)  # how the training itself varies from run to run


def crowded(step: float, waited: float, **facts: Any) -> Summary:
    """Return a run of three clean windows; each step trains for a time, and waits for a core."""
    return recorded([([step + waited] * 2, waited / (step + waited))] * 3, **facts)


def recorded(windows: Iterable[Window], *, disturbed: bool = True, device: str = "cpu", known: bool = True) -> Summary:
    """Return a run of clean windows, from the seconds of their blocks and the share of them spent on waits."""
    strings, made = Strings(), []
    counter = strings.add(WAITED_FOR_CORE)
    for at, (blocks, share) in enumerate(windows):
        window, seconds = timed_window(at, "clean", blocks), sum(blocks)
        rows = [SampleRow(counter, -1, 0, 5.0), SampleRow(counter, -1, round(seconds * 1e9), 5.0 + share * seconds)]
        window.tables["sample"] = table("sample", rows if known else [])
        made.append(window)
    found = summarize(Recording(run(complete=True, batch_size=8, device=device), made, strings))
    return replace(found, cpu=CpuUtilization(0.4, 0.5, 2.0, 2.0, disturbed=disturbed))


@cache
def of_fixture(name: str, *, known: bool = True) -> list[Summary]:
    """Return recorded runs in the order in which they were recorded."""
    runs = json.loads(FIXTURE.read_text())[name]
    return [recorded([([ms / 1e3 for ms in each["ms"]], each["waited"]) for each in run], known=known) for run in runs]


def verdicts_on_the_same(*, known: bool = True) -> list[str]:
    """Return the verdicts on three runs a side of one loop that were recorded in turn."""
    both = [of_fixture(name, known=known) for name in ("as_it_is", "slower")]
    pairs = [(runs[at : at + 6 : 2], runs[at + 1 : at + 6 : 2]) for runs in both for at in range(len(runs) - 5)]
    return [compare(*pair).pairs[0].verdict for pair in pairs]


def verdicts_on_a_slower_one(*, known: bool = True) -> list[str]:
    one, two = (of_fixture(name, known=known) for name in ("as_it_is", "slower"))
    return [compare(one[at : at + 3], two[at : at + 3]).pairs[0].verdict for at in range(len(one) - 2)]


def sides(
    times: float, waits: Iterable[float] = WAITS, varied: Iterable[float] = VARIED, **facts: Any
) -> tuple[list[Summary], list[Summary]]:
    """Return three runs a side, recorded in turn; the steps of the second side train for longer."""
    runs = [
        crowded(0.1 * each * (times if place % 2 else 1.0), waited, **facts)
        for place, (each, waited) in enumerate(zip(varied, waits, strict=True))
    ]
    return runs[::2], runs[1::2]


def test_waits_are_left_out_where_others_took_the_cores() -> None:
    (same,), (slow,) = (compare(*sides(times)).pairs for times in (1.0, 1.1))

    assert (same.verdict, same.throughput.basis) == (NO_DIFFERENCE, FREED)
    assert (slow.verdict, slow.throughput.ratio) == (SLOWER, pytest.approx(1 / 1.1))
    times = {each.path: (each.basis, each.ratio) for each in slow.figures[:2]}
    assert times["step_time"] == (FREED, pytest.approx(1.1))
    assert times["step_time_with_waits"][0] == BETWEEN


@pytest.mark.parametrize("facts", [{"disturbed": False}, {"device": "cuda:0"}, {"known": False}])
def test_with_waits_a_slowdown_is_lost_in_what_others_took(facts: dict[str, Any]) -> None:
    (pair,) = compare(*sides(1.1, **facts)).pairs

    assert (pair.verdict, pair.throughput.basis) == (NO_DIFFERENCE, BETWEEN)
    assert [each.path for each in pair.figures if "step_time" in each.path] == ["step_time"]


def test_a_loop_that_waits_for_its_data_longer_is_found_as_well() -> None:
    (pair,) = compare(*sides(1.1, [0.0] * 5 + [0.001])).pairs  # the time that no thread was ready is not left out

    assert pair.verdict == SLOWER


def test_a_limit_is_held_against_what_is_left_and_the_report_says_so() -> None:
    compared = compare(*sides(1.2))
    limits = [parse("throughput < -5%"), parse("step_time_with_waits > +500%")]

    judged = judge(compared, [[{}] * 3] * 2, limits).judged

    assert [each.outcome for each in judged] == [BROKEN, "fine"]
    assert "without the time in which threads waited" in " ".join(render(compared, width=100).split())


def test_a_slowdown_is_found_in_most_simulated_crowds_and_none_is_invented() -> None:
    draw, found, invented = np.random.default_rng(3), 0, 0
    for _ in range(20):
        waits, varied = draw.exponential(0.04, 6), draw.normal(1.0, 0.015, 6)
        found += compare(*sides(1.1, waits, varied)).pairs[0].verdict == SLOWER
        invented += compare(*sides(1.0, waits, varied)).pairs[0].verdict != NO_DIFFERENCE

    assert found >= 19
    assert invented <= 2


def test_a_slowdown_that_was_really_run_on_a_crowded_machine_is_found() -> None:
    assert {*verdicts_on_a_slower_one()} == {SLOWER}
    assert verdicts_on_a_slower_one(known=False).count(SLOWER) < 8  # of 13: as it is with waits


def test_recorded_runs_of_one_loop_show_no_difference() -> None:
    verdicts = verdicts_on_the_same()

    assert len(verdicts) == 20
    assert verdicts.count(NO_DIFFERENCE) >= 19
