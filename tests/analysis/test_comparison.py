"""Recordings beside each other: what is compared, what is refused, what a limit says; figures worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from make import run, timed_window
from report_results import CONVOLUTION, LAYERS, NORMALIZATION, TIME, UNCOUNTED

import tbdprof
from tbdprof.analysis.comparison.files import compare
from tbdprof.analysis.comparison.gate import judge
from tbdprof.analysis.comparison.limits import bound, parse
from tbdprof.analysis.comparison.names import SHORT
from tbdprof.analysis.summary import summarize
from tbdprof.errors import UsageError
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Optimizer
from tbdprof.report.json_report import document
from tbdprof.results.compare import (
    BETWEEN,
    BROKEN,
    CANNOT_TELL,
    EVENED,
    FASTER,
    FINE,
    NO_DIFFERENCE,
    SLOWER,
    WITHIN,
    Change,
    Comparison,
    Judged,
    figures_of,
)
from tbdprof.results.summary import Summary
from tbdprof.results.time import CpuUtilization

FIXTURES = Path(__file__).parents[1] / "fixtures"
STEADY = ([0.100, 0.101], [0.100, 0.102], [0.099, 0.101])


def trained(times: float = 1.0, windows: Sequence[Sequence[float]] = STEADY, **facts: Any) -> Summary:
    """Return the summary of a run whose clean windows have steps of these seconds, one unit each."""
    made = [timed_window(at, "clean", [times * each for each in steps]) for at, steps in enumerate(windows)]
    return summarize(Recording(run(**{"complete": True, "batch_size": 8, **facts}), made))


def of_loop(count: int, times: float = 1.0) -> list[Summary]:
    """Return runs that vary by 1 % around a mean."""
    return [trained(times * (1 + 0.01 * (place - (count - 1) / 2))) for place in range(count)]


def judged(baseline: list[Summary], other: list[Summary], *texts: str, anyway: bool = False) -> tuple[Judged, ...]:
    compared = compare(baseline, other)
    documents = [[document(each) for each in side] for side in (baseline, other)]
    return judge(compared, documents, [parse(text) for text in texts], anyway=anyway).judged


def test_the_same_thing_shows_no_difference_and_a_slower_one_does():
    (same,), (slow,), (fast,) = (compare(trained(), trained(times)).pairs for times in (1.0, 1.2, 0.8))

    assert (same.verdict, slow.verdict, fast.verdict) == (NO_DIFFERENCE, SLOWER, FASTER)
    assert slow.throughput.ratio == pytest.approx(1 / 1.2)
    assert slow.throughput.basis == WITHIN
    assert {each.path: each.ratio for each in slow.figures} == {"step_time": pytest.approx(1.2)}


def test_single_recordings_are_not_told_apart_by_less_than_windows_of_one_run_may_differ():
    still = ([0.1, 0.1],) * 3
    (single,), (repeats,) = (
        compare(trained(1.0, still), trained(1.04, still)).pairs,
        compare(of_loop(9), of_loop(9, 1.04)).pairs,
    )
    assert single.throughput.interval == pytest.approx((1 / 1.04, 1 / 1.04))
    assert (single.verdict, repeats.verdict) == (NO_DIFFERENCE, SLOWER)


def test_repeats_are_pooled_and_their_variation_makes_the_interval():
    (pair,) = compare(of_loop(3), of_loop(3, 1.1)).pairs

    assert (pair.verdict, pair.throughput.basis) == (SLOWER, BETWEEN)
    assert pair.throughput.ratio == pytest.approx(1 / 1.1)
    # The logs of three runs 1 % apart have a standard deviation of 1 %, and t of 4 degrees of freedom is 2.776.
    low, high = pair.throughput.interval or (0.0, 0.0)
    assert high / low == pytest.approx(1 + 2 * 2.776 * 0.01 * (2 / 3) ** 0.5, rel=2e-3)


def test_more_than_two_sides_are_each_compared_with_the_first():
    found = compare(trained(), trained(1.2), trained(0.8))

    assert [side.label for side in found.sides] == ["A", "B", "C"]
    assert [(pair.side, pair.verdict) for pair in found.pairs] == [(1, SLOWER), (2, FASTER)]


def test_one_cannot_tell_from_single_recordings_that_drifted_but_can_from_repeats():
    drifting = ([0.080, 0.081], [0.100, 0.101], [0.120, 0.121])
    (pair,) = compare(trained(0.3, drifting), trained()).pairs
    assert (pair.verdict, pair.throughput.interval is not None) == (CANNOT_TELL, True)
    assert "not steady" in pair.reason

    (pair,) = compare([trained(0.3, drifting)] * 3, of_loop(3)).pairs
    assert pair.verdict == SLOWER


def test_a_single_block_or_no_clean_window_is_a_reason_and_no_verdict():
    (pair,) = compare(trained(windows=([0.1],)), trained()).pairs
    assert (pair.verdict, pair.reason) == (CANNOT_TELL, "needs two blocks of steps or more")

    (pair,) = compare(trained(), trained(windows=())).pairs
    assert (pair.verdict, pair.throughput.ratio) == (CANNOT_TELL, None)
    assert pair.reason == trained(windows=()).missing["throughput"]


def test_a_throughput_of_0_is_a_reason_and_no_verdict():
    none = summarize(Recording(run(complete=True), [timed_window(0, "clean", [0.1, 0.1], units=0.0)]))

    for sides in ((trained(), none), (none, trained()), ([none, none], of_loop(2))):
        (pair,) = compare(*sides, anyway=True).pairs
        assert (pair.verdict, pair.throughput.interval) == (CANNOT_TELL, None)
        assert pair.reason.startswith("no ratio")


def test_work_in_other_units_is_compared_in_samples_or_not_at_all():
    (pair,) = compare(trained(), trained(unit="tokens", sample_unit="tokens")).pairs
    assert (pair.throughput.unit, pair.throughput.ratio) == ("samples/s", pytest.approx(1.0))

    (pair,) = compare(trained(unit="tokens"), trained(unit="tokens", batch_size=16)).pairs
    assert (pair.throughput.unit, pair.throughput.ratio) == ("samples/s", pytest.approx(2.0))

    (pair,) = compare(trained(unit="tokens"), trained(unit="tokens", batch_size=None)).pairs
    assert (pair.throughput.unit, pair.throughput.ratio) == ("tokens/s", pytest.approx(1.0))

    (pair,) = compare(trained(), trained(unit="tokens", batch_size=None)).pairs
    assert pair.verdict == CANNOT_TELL
    assert "different units" in pair.reason


def test_other_processes_that_take_the_cores_widen_the_interval_of_single_recordings():
    def crowded(times: float, share: float) -> Summary:
        return replace(trained(times), cpu=CpuUtilization(share, 1 - share, 2.0, 2.0, disturbed=share < 0.9))

    (pair,) = compare(crowded(1.0, 0.4), crowded(1.25, 0.32)).pairs  # as much slower as it had less of the cores
    assert (pair.verdict, pair.throughput.basis) == (NO_DIFFERENCE, EVENED)
    assert (pair.throughput.interval or (0, 0))[1] > 1 > (pair.throughput.interval or (0, 0))[0] > 0.7

    (pair,) = compare(crowded(1.0, 0.4), crowded(1.25, 0.4)).pairs
    assert pair.verdict == SLOWER

    idle = replace(trained(1.25), cpu=CpuUtilization(0.32, 0.3, 2.0, 2.0, disturbed=True))  # it could have had more
    assert compare(replace(idle, throughput=trained().throughput), idle).pairs[0].throughput.basis == WITHIN


def test_what_differs_stands_apart_from_what_does_not():
    found = compare(trained(threads=2, precision="fp32"), trained(threads=4, precision="fp32", options={"rnn": "cell"}))

    assert found.differences == {"threads": ("2", "4"), "option rnn": ("", "cell")}
    assert (found.shared["precision"], found.shared["batch"]) == ("fp32", "8")


def test_other_optimizers_are_a_difference():
    adam, lion = (Optimizer(kind, ("fc.weight",)) for kind in ("adam", "Lion"))
    found = compare(trained(optimizers=(adam, adam)), trained(optimizers=(lion, adam)))

    assert found.differences == {"optimizer": ("adam", "Lion, adam")}


def test_what_makes_a_side_unsure_is_remarked():
    drifting = ([0.080, 0.081], [0.100, 0.101], [0.120, 0.121])
    found = compare([trained(), trained(1.0, drifting)], trained(complete=False, ended_by="killed"))

    assert found.sides[0].remarks == ("A: toy drifted: clean windows disagree",)
    assert found.sides[1].remarks == ("B is not complete: killed",)


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        (
            [trained(), trained(model="other")],
            "different models: toy is of toy, other of other; --anyway compares them",
        ),
        (
            [[trained(), trained(batch_size=16)], trained()],
            "toy is no repeat of toy: batch 16, not 8; give them as two",
        ),
        ([[trained(), trained(options={"rnn": "cell"})], trained()], "no repeat of toy: option rnn cell, not -"),
        ([[], trained()], "a side has no recording"),
        ([trained()], "1 recording to compare: give from 2 to 26"),
        ([trained()] * 27, "27 recordings to compare"),
        ([trained(), 7], "int cannot be compared: give a file"),
    ],
)
def test_what_cannot_be_compared_is_refused(sides: list[Any], said: str):
    with pytest.raises(UsageError, match=said):
        compare(*sides)


def test_anyway_compares_other_models_and_pools_unlike_repeats():
    found = compare([trained(), trained(batch_size=16)], trained(model="other"), anyway=True)

    assert found.differences["model"] == ("toy", "other")


def test_kernels_came_went_and_grew_with_the_longest_change_first():
    one = replace(trained(), groups=(CONVOLUTION, NORMALIZATION), layers=LAYERS, step_time=TIME)
    grown, fresh = replace(CONVOLUTION, seconds=0.13), replace(UNCOUNTED, seconds=0.005)
    (pair,) = compare(one, replace(one, groups=(grown, fresh), layers=LAYERS[:1])).pairs

    assert [(each.name, each.phase, each.reason, round(each.change, 9)) for each in pair.kernels] == [
        (NORMALIZATION.name, "backward", "went", -0.04),
        (CONVOLUTION.name, "forward", pair.kernels[1].reason, 0.03),
        ("mine::fused", "update", "came", 0.005),
    ]
    assert [each.name for each in pair.layers] == ["bn1", None, "", "layer1.0.conv1"]
    assert [each.name for each in pair.operations] == ["normalization", "convolution", "other"]
    assert pair.same_names
    assert not compare(one, replace(trained(framework="mxnet"), groups=(grown,))).pairs[0].same_names


def test_a_kernel_of_some_repeats_counts_as_nothing_in_the_others():
    one = replace(trained(), groups=(CONVOLUTION,))
    (pair,) = compare([one, one], [one, replace(one, groups=(CONVOLUTION, UNCOUNTED))]).pairs

    assert {each.name: each.other for each in pair.kernels}["mine::fused"] == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("throughput < -5%", BROKEN),
        ("throughput < -25%", FINE),
        ("throughput < -9%", CANNOT_TELL),
        ("throughput.samples_per_s < -5 %", BROKEN),
        ("step_time > +5%", BROKEN),
        ("step_time > 105 ms", BROKEN),
        ("step_time > 0.2 s", FINE),
        ("step_time > +5 ms", BROKEN),
        ("throughput < 9.5", BROKEN),
        ("throughput < 9.5 samples/s", BROKEN),
        ("throughput >= 5", BROKEN),
        ("run.steps.clean > 5", BROKEN),
        ("run.steps.clean > 6", FINE),
        ("run.steps.clean >= 6", BROKEN),
        ("run.steps.clean <= +0%", BROKEN),
        ("energy > 1 J", CANNOT_TELL),
        ("peak_memory > +2%", CANNOT_TELL),
    ],
)
def test_a_limit_is_broken_holds_or_cannot_be_told(text: str, outcome: str):
    (found,) = judged(of_loop(3), of_loop(3, 1.1), text)

    assert found.outcome == outcome, found


def test_every_limit_is_listed_for_every_side():
    sides = [[trained()], [trained(1.2)], [trained()]]
    documents = [[document(each) for each in side] for side in sides]

    found = judge(compare(*sides), documents, [parse("throughput < -5%"), parse("step_time > +5%")]).judged

    assert [(each.side, each.outcome) for each in found][:2] == [(1, BROKEN), (1, BROKEN)]
    assert len(found) == 4


def test_the_reason_says_why_one_cannot_tell():
    drifting = trained(0.5, ([0.080, 0.081], [0.100, 0.101], [0.120, 0.121]))

    reasons = {
        "across": judged(of_loop(3), of_loop(3, 1.1), "throughput < -9%"),
        "drifted": judged([drifting], [trained()], "throughput < -5%"),
        "batch": judged([trained()], [trained(1.2, batch_size=16)], "throughput < -5%"),
        "no GPU": judged([trained()], [trained()], "energy > +5%"),
        "no window": judged([trained()], [trained()], "time.step_s > +5%"),
    }
    said = {name: found[0].reason for name, found in reasons.items()}

    assert said["across"].startswith("the interval lies across the limit")
    assert said["drifted"] == "not steady while it was measured: toy"
    assert said["batch"] == "not comparable: batch 8 and 16 (--anyway compares them)"
    assert said["no GPU"]
    assert "kernels window" in said["no window"]
    assert judged([trained()], [trained(1.2, batch_size=16)], "throughput < -5%", anyway=True)[0].outcome == BROKEN
    assert judged([trained()], [trained(1.2, batch_size=16)], "step_time > 105 ms")[0].outcome == BROKEN


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("throughput", "is no limit: write FIGURE < NUMBER"),
        ("< -5%", "is no limit"),
        ("throughput < five", "is no limit"),
        ("thruput < -5%", "no figure 'thruput': did you mean throughput"),
        ("memory.at_pek.weights > +2%", "did you mean weights or memory.at_peak.weights"),
        ("throughput < 5%", "throughput is no share: write [+]5% or -5% for a change"),
        ("peak_memory > 3 ms", "peak_memory is in bytes, not ms"),
        ("step_time > 3 MiB", "step_time is in seconds, not MiB"),
        ("run.model > 3", "no figure 'run.model'"),
        ("step_time > 3 furlongs", "unknown unit 'furlongs'"),
    ],
)
def test_a_limit_that_cannot_be_asked_is_one_line(text: str, said: str):
    fixture = tbdprof.load(FIXTURES / "format-5-torch.tbd").summary

    with pytest.raises(UsageError, match=said):
        judged([fixture], [fixture], text)


def test_a_name_with_signs_of_comparison_in_it_can_be_limited():
    limit = parse("kernels[void add<float>(int) forward].seconds > +0.5 ms")

    assert (limit.figure, limit.operator) == ("kernels[void add<float>(int) forward].seconds", ">")
    assert bound(limit, limit.figure) == pytest.approx(5e-4)


def test_the_figures_of_a_report_go_by_their_paths():
    fixture = tbdprof.load(FIXTURES / "format-5-torch.tbd").summary
    found = figures_of(document(fixture))

    assert found["memory.at_peak.weights"] == 848
    assert found["kernels[aten::mm backward].seconds"] == pytest.approx(1.27e-05, rel=0.01)
    assert found["time_by_layer[2].backward_seconds"] == pytest.approx(3.335e-05, rel=0.01)
    assert found["throughput.windows[0]"] == pytest.approx(4576, rel=0.01)
    assert "run.complete" not in found
    assert set(SHORT.values()) - {""} <= set(found) | {
        "device_memory.used_bytes",
        "energy.joules_per_unit",
        "time.communication.seconds",
    }


def test_a_file_a_recording_and_a_summary_can_be_compared():
    path = FIXTURES / "format-5-torch.tbd"
    loaded = tbdprof.load(path)

    found = tbdprof.compare(path, [loaded, loaded.summary])

    assert isinstance(found, Comparison)
    assert found.sides[0].names == (str(path),)
    assert loaded.summary is loaded.summary
    assert all(isinstance(each, Change) for each in found.pairs[0].figures)


def test_the_docs_list_every_short_name_and_no_other():
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    table = page.partition("| short name | figure |\n|---|---|\n")[2].partition("\n\n")[0]

    named = [
        name for line in table.splitlines() for name in line.split("|")[1].replace("`", "").replace(",", " ").split()
    ]

    assert sorted(named) == sorted(SHORT)
