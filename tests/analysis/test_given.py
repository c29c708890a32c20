"""Samples and tokens of steps that the loop does not count: said, told by a loader, or seen at the models' calls."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from fake_loop import WHOLE
from fakes import FakeHook
from make import run

from tbdprof.analysis.summary import summarize
from tbdprof.facts.batches import FIRST_SIZE
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained, Facts
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.report import terminal
from tbdprof.report.json_report import document
from tbdprof.results.summary import Summary


class Seeing(FakeHook):
    """A framework that sees what its models are given, in each window anew, and what a loader says."""

    def __init__(self, given: Sequence[Mapping[str, float]], loader: int | None = None) -> None:
        super().__init__()
        self.given = given
        self.loader = loader

    def facts(self) -> Facts:
        return replace(super().facts(), batch_size=self.loader, batch_size_from="the loader's batch size")

    def drain(self, strings: Strings) -> Drained:
        return replace(super().drain(strings), given=self.given)


def trained(hook: Seeing, units: float | None = None, per_step: float | None = None, **facts: Any) -> Summary:
    prof = LoopProfiler(hook, run(**{"batch_size": None, **facts}), WHOLE, clock=hook.clock, per_step=per_step)
    with prof:
        while prof.active:
            hook.clock.sleep(0.1)
            prof.step(units)
    return summarize(prof.recording)


def rates(summary: Summary) -> dict[str, float]:
    """Return the throughput in each unit."""
    assert summary.throughput is not None
    others = {other.unit: other.rate.per_s for other in summary.throughput.others}
    return {summary.throughput.unit: summary.throughput.rate.per_s, **others}


def origin(summary: Summary) -> str:
    assert summary.throughput is not None
    return summary.throughput.samples_from


def test_what_all_steps_were_given_is_that_of_the_clean_steps_too():
    found = trained(Seeing([{"samples": 8, "tokens": 512}] * 4))

    assert rates(found) == pytest.approx({"steps": 10, "samples": 80, "tokens": 5120})
    assert origin(found) == FIRST_SIZE
    use = found.utilization
    assert use is not None
    assert use.flops_per_step
    assert use.flops_per_unit == pytest.approx(
        {"steps": use.flops_per_step, "samples": use.flops_per_step / 8, "tokens": use.flops_per_step / 512}
    )
    assert use.flops_per_sample == use.flops_per_unit["samples"]
    json = document(found)
    assert (json["run"]["batch_size"], json["run"]["samples_from"]) == (8, FIRST_SIZE)
    assert json["throughput"]["samples_per_s"] == pytest.approx(80)
    assert not {"run.batch_size", "throughput.samples_per_s"} & found.missing.keys()
    text = " ".join(terminal.render(found, width=200).split())
    assert "8 samples, 512 tokens a step: the first size of the model's input" in text
    assert "FLOP a sample · " in text
    assert "FLOP a step · " in text
    assert "FLOP a token" in text


def test_where_the_steps_differ_there_is_no_rate_and_the_reason_is_told():
    found = trained(Seeing([{"samples": 8}, {"samples": 4}, {"samples": 8}, {"samples": 8}]))

    assert rates(found) == pytest.approx({"steps": 10})
    why = "the steps that were watched differ, from 4 to 8 samples: give prof.step() the number of each"
    assert found.missing["throughput.samples_per_s"] == found.missing["run.batch_size"] == why
    use = found.utilization
    assert use is not None
    assert use.flops_per_sample == pytest.approx(2 * (use.flops_per_step or 0) / (4 + 8))  # of the counted steps


def test_a_loader_vouches_for_all_steps_where_some_were_smaller():
    found = trained(Seeing([{"samples": 8}, {"samples": 8}, {"samples": 3}, {"samples": 8}], loader=8))

    assert rates(found) == pytest.approx({"steps": 10, "samples": 80})
    assert origin(found) == "the loader's batch size"


def test_a_loader_that_is_asked_several_times_a_step_gives_as_many_batches():
    found = trained(Seeing([{"samples": 24}] * 4, loader=8))

    assert rates(found) == pytest.approx({"steps": 10, "samples": 240})
    assert origin(found) == "the loader's batch size, 3 times a step"


def test_a_loader_decides_where_the_first_size_is_that_of_time():
    found = trained(Seeing([{"samples": 35, "tokens": 700}] * 4, loader=20))

    assert rates(found) == pytest.approx({"steps": 10, "samples": 200, "tokens": 7000})
    assert origin(found) == "the loader's batch size"
    assert found.utilization is not None
    assert found.utilization.flops_per_sample == pytest.approx((found.utilization.flops_per_step or 0) / 20)


def test_what_the_user_says_comes_first():
    seen = [{"samples": 8, "tokens": 512}] * 4
    assert rates(trained(Seeing(seen, loader=4), 16)) == pytest.approx({"samples": 160, "tokens": 5120})
    assert rates(trained(Seeing(seen, loader=4), per_step=16)) == pytest.approx({"samples": 160, "tokens": 5120})
    said = trained(Seeing(seen, loader=4), batch_size=16)
    assert (rates(said), origin(said)) == (pytest.approx({"steps": 10, "samples": 160}), "as given")


def test_a_unit_of_the_users_own_is_what_a_sample_is_called():
    found = trained(Seeing([{"samples": 8}] * 4), unit="images", sample_unit="images")
    assert rates(found) == pytest.approx({"steps": 10, "images": 80})


def test_without_anything_seen_only_steps_are_told():
    found = trained(Seeing([]))
    assert rates(found) == pytest.approx({"steps": 10})
    assert found.missing["throughput.samples_per_s"] == "no samples were counted, and no batch size is known"
