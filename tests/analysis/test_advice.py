"""Advice that was tried, on made-up summaries: what is chosen, how it is ranked and judged, what the report says."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from make import run, timed_window
from report_results import CONVOLUTION, NORMALIZATION, UNCOUNTED

from tbdprof.analysis.advice.choosing import MOST_OTHERS, TRIED_BY, choices
from tbdprof.analysis.advice.judging import ITSELF, Measured, advised, name_of
from tbdprof.analysis.summary import summarize
from tbdprof.analysis.time.verdict import ADVICE, MEASURE_AGAIN
from tbdprof.facts.recording import Recording
from tbdprof.report.advice import as_json
from tbdprof.report.advice import text as reports
from tbdprof.results.advice import Advised, Choice, Losses, Result
from tbdprof.results.summary import Summary
from tbdprof.results.sweep import End
from tbdprof.results.time import Verdict

AVAILABLE: dict[str, tuple[str | int, ...]] = {
    "compile": ("on",),
    "channels_last": ("on",),
    "fused_optimizer": ("on",),
    "checkpointing": ("on",),
    "hybridize": ("none", "static"),
    "precision": ("bf16",),
    "threads": (1,),
    "batch_size": (16,),
}
STEADY = ((0.100, 0.101), (0.100, 0.102), (0.099, 0.101))
LOSSES = Losses((7.0, 6.5, 6.0))


def verdict(*names: str) -> Verdict:
    """Return the verdict that one share is the largest, or that one of several is."""
    advice = ADVICE[names[0]] if len(names) == 1 else (MEASURE_AGAIN, *(ADVICE[name][0] for name in names))
    bound = names[0] if len(names) == 1 else None
    return Verdict(bound, 0.8, f"bound by {names[0]}: 80 %", advice, {"compute": 0.8}, {}, names)


def trained(times: float = 1.0, **facts: Any) -> Summary:
    """Return the summary of a run whose clean steps take these times a tenth of a second."""
    made = [timed_window(at, "clean", [times * each for each in steps]) for at, steps in enumerate(STEADY)]
    found = summarize(Recording(run(**{"complete": True, "batch_size": 8, **facts}), made))
    groups = (replace(CONVOLUTION, seconds=0.08 * times), NORMALIZATION)
    return replace(found, verdict=verdict("memory"), groups=groups)


def tried(choice: Choice, times: float, **more: Any) -> Measured:
    return Measured(choice, End.FINISHED, None, trained(times), more.pop("losses", LOSSES), 12.0)


def named(found: Sequence[Choice]) -> dict[str, bool]:
    return {name_of(each.settings): bool(each.advice) for each in found}


def test_what_the_verdict_points_at_comes_first_and_then_a_few_that_it_does_not():
    assert named(choices(verdict("memory"), AVAILABLE)) == {
        "compile": True,
        "hybridize static": True,
        "fused optimizer": True,
        "precision bf16": True,
        "channels last": True,
        "checkpointing": False,
        "hybridize none": False,
        "threads 1": False,
    }
    assert named(choices(verdict("compute"), AVAILABLE)) == {
        "precision bf16": True,
        "compile": False,
        "hybridize static": False,
        "channels last": False,
    }
    assert named(choices(verdict("launching"), AVAILABLE))["batch size 16"]


@pytest.mark.parametrize("bound", ["data", "copies", "communication", "other", "uncounted"])
def test_where_no_switch_carries_out_the_advice_only_others_are_tried(bound: str):
    found = choices(verdict(bound), AVAILABLE)

    assert len(found) == MOST_OTHERS
    assert not any(each.advice for each in found)


def test_an_undecided_verdict_points_at_the_first_advice_of_each_share():
    found = named(choices(verdict("memory", "launching"), AVAILABLE))

    assert found["compile"]
    assert found["batch size 16"]
    assert not found.get("precision bf16", False)  # the second advice on memory


def test_without_a_verdict_others_are_tried_and_with_all_everything_but_a_larger_batch():
    assert len(choices(None, AVAILABLE)) == MOST_OTHERS
    every = named(choices(None, AVAILABLE, tries_all=True))
    assert every.keys() == named(choices(verdict("memory"), AVAILABLE, tries_all=True)).keys()
    assert "batch size 16" not in every
    assert len(every) == 8


def test_what_carries_out_an_advice_is_an_advice_that_a_verdict_gives():
    assert {*TRIED_BY} <= {text for several in ADVICE.values() for text in several}


def of_all_kinds() -> Advised:
    static, compiled = (
        Choice({"hybridize": "static"}, ADVICE["memory"][:1]),
        Choice({"compile": "on"}, ADVICE["memory"][:1]),
    )
    plain = trained()
    slow = tried(Choice({"threads": 1}), 1.6)
    same = tried(Choice({"channels_last": "on"}, ADVICE["memory"][1:]), 1.005, losses=Losses((7.0, 6.5, 6.6)))
    fast = tried(compiled, 0.7)
    faster = tried(static, 0.5)
    fast = replace(fast, summary=replace(trained(0.7), groups=(UNCOUNTED,)))
    broken = Measured(Choice({"precision": "bf16"}, ADVICE["memory"][1:]), End.FAILED, "no such unit", None, Losses())
    full = Measured(Choice({"batch_size": 16}), End.OUT_OF_MEMORY, "out of memory (asked 3 GiB)", None, Losses(), 3.0)
    return advised(plain, LOSSES, [broken, slow, same, full, fast, faster], tried(Choice({"again": 1}), 1.0))


def test_trials_are_ranked_by_what_they_gained_and_what_failed_is_last():
    found = of_all_kinds()

    assert [(each.name, each.result) for each in found.trials] == [
        ("hybridize static", Result.FASTER),
        ("compile", Result.FASTER),
        ("channels last", Result.NO_DIFFERENCE),
        ("threads 1", Result.SLOWER),
        ("batch size 16", Result.OUT_OF_MEMORY),
        ("precision bf16", Result.FAILED),
    ]
    ratios = [each.pair.throughput.ratio for each in found.trials if each.pair is not None]
    assert ratios == pytest.approx([2.0, 1 / 0.7, 1 / 1.005, 1 / 1.6])


def test_each_line_of_advice_is_judged_by_its_best_trial():
    found = of_all_kinds()

    assert [(each.text, each.result) for each in found.advice] == [
        (ADVICE["memory"][0], Result.FASTER),
        (ADVICE["memory"][1], Result.NO_DIFFERENCE),
    ]
    assert [each.name for each in found.advice[0].trials] == ["hybridize static", "compile"]


def test_a_gain_no_larger_than_what_the_plain_run_differs_from_itself_is_none():
    small, large = Choice({"compile": "on"}), Choice({"channels_last": "on"})
    measured = [tried(small, 0.85), tried(large, 0.6)]

    def results(again: float) -> list[Result]:
        return [each.result for each in advised(trained(), LOSSES, measured, tried(Choice({"again": 1}), again)).trials]

    assert results(1.0) == [Result.FASTER, Result.FASTER]
    assert results(1.25) == [Result.FASTER, Result.CANNOT_TELL]
    found = advised(trained(), LOSSES, measured, tried(Choice({"again": 1}), 1.25))
    assert found.trials[1].reason == ITSELF
    assert "the machine changed meanwhile" in reports.render(found, width=160)


def test_the_report_has_a_row_for_each_trial_and_judges_the_verdict():
    text = reports.render(of_all_kinds(), width=300)
    lines = text.splitlines()

    def row(name: str) -> str:
        return next(line for line in lines if line.startswith(f"{name} "))

    assert "verdict" in text
    assert "bound by memory: 80 %" in text
    assert f"{ADVICE['memory'][0]} - measured: hybridize static: it helped (2.000 [" in text
    assert "compile: it helped (1.429 [" in text
    assert row("hybridize static").split()[2:5] == ["yes", "faster", "2.000"]
    assert row("hybridize static").rstrip().endswith(" 6 (same)  12 s")
    assert "+10.00 %" in row("channels last")  # of the loss
    assert "batch size 16: out of memory: out of memory (asked 3 GiB)" in lines
    assert "precision bf16: failed: no such unit" in lines
    assert "the best is hybridize static: 2.000 times [" in text
    assert "the verdict points at it" in text
    came = lines.index(next(line for line in lines if line.startswith("compile: kernels")))
    assert CONVOLUTION.name in lines[came + 3]  # the longest change first


def test_advice_that_no_switch_tries_is_said_to_be_untried():
    plain = replace(trained(), verdict=verdict("data"))
    text = reports.render(advised(plain, Losses(reason="it plays games"), []), width=160)

    assert text.count(reports.NO_SWITCH) == len(ADVICE["data"])
    assert "no loss: it plays games" in text
    assert "nothing was tried" in text


def test_nothing_is_advised_where_nothing_gained():
    found = advised(trained(), LOSSES, [tried(Choice({"compile": "on"}), 1.0), tried(Choice({"eager": "on"}), 1.5)])

    assert "nothing that was tried is seen to make it faster" in reports.render(found).splitlines()


def test_a_loss_of_another_number_of_steps_is_not_set_beside_the_plain_one():
    found = advised(trained(), LOSSES, [tried(Choice({"compile": "on"}), 1.0, losses=Losses((7.0, 1.0)))])

    assert "%" not in next(
        line for line in reports.render(found, width=200).splitlines() if line.startswith("compile ")
    )


def test_json_holds_all_trials_with_intervals_kernels_and_losses():
    report = json.loads(as_json.render(of_all_kinds()))

    first, *_, last = report["trials"]
    assert (first["name"], first["result"], first["settings"]) == (
        "hybridize static",
        "faster",
        {"hybridize": "static"},
    )
    low, high = first["throughput"]["ratio_ci95"]
    assert 1 < low < first["throughput"]["ratio"] < high
    assert [each["name"] for each in first["kernels"]] == [CONVOLUTION.name, NORMALIZATION.name]
    assert (first["losses"], report["plain"]["losses"]["values"]) == ([7.0, 6.5, 6.0], [7.0, 6.5, 6.0])
    assert (last["result"], last["reason"], last["throughput"]) == ("failed", "no such unit", None)
    assert report["advice"][0]["trials"] == ["hybridize static", "compile"]
    assert report["again"]["result"] == "no difference"
    assert report["runs"] == ["plain", "threads 1", "channels last", "compile", "hybridize static", "plain, again"]
    assert report["remarks"] == {}


def test_what_makes_a_run_less_sure_goes_by_its_name():
    choice = Choice({"compile": "on"})
    moving = Measured(choice, End.FINISHED, None, trained(0.5, settled=False), LOSSES)
    found = advised(trained(), LOSSES, [moving])

    assert json.loads(as_json.render(found))["remarks"] == {"compile": ["never settled before it was measured"]}
    assert "'compile' never settled before it was measured" in reports.render(found)


def test_at_100_columns_every_column_is_whole():
    lines = reports.render(of_all_kinds(), width=100).splitlines()

    assert any(re.fullmatch(r"tried +pointed at +result +throughput +loss +took", line) for line in lines)
    assert any(line.startswith("hybridize static  ") and "[" in line and "]" in line for line in lines)
    assert max(map(len, lines)) <= 100


def test_an_interval_too_wide_to_rule_out_a_gain_is_said_to_be_so():
    noisy = replace(trained(), recording=trained().recording)
    choice = Choice({"compile": "on"})
    wild = summarize(
        Recording(
            run(complete=True, batch_size=8),
            [timed_window(at, "clean", steps) for at, steps in enumerate(([0.02, 0.03], [0.3, 0.2], [0.05, 0.1]))],
        )
    )
    found = advised(noisy, LOSSES, [Measured(choice, End.FINISHED, None, wild, LOSSES)])
    text = reports.render(found, width=200)

    assert found.trials[0].result is Result.NO_DIFFERENCE
    assert "compile: no difference shows, but the interval is too wide to say that there is none" in text
    assert "this noise could hide a gain" in text
