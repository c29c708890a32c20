"""Other units than the run's own, padding and lengths, from the counts of steps."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from fake_loop import WHOLE
from fakes import FakeHook
from make import run

from tbdprof.analysis.summary import summarize
from tbdprof.facts.consumed import Consumed
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.report import export, terminal
from tbdprof.report.json_report import document
from tbdprof.results.summary import Summary

# Two batches in turn: 4 sentences of 10 and of 30 words, of which 4 and 20 are padding.
SHORT = Consumed(36, also={"sentences": 4}, padding={"tokens": 4}, lengths={"source": 10})
LONG = Consumed(100, also={"sentences": 4}, padding={"tokens": 20}, lengths={"source": 30})
PLAN = replace(WHOLE, steps=2, period=2)


def summary() -> Summary:
    hook = FakeHook()
    prof = LoopProfiler(hook, run(unit="tokens", sample_unit="sentences", batch_size=3), PLAN, clock=hook.clock)
    with prof:
        step = 0
        while prof.active:
            hook.clock.sleep(0.3 if step % 2 else 0.1)
            prof.step(LONG if step % 2 else SHORT)
            step += 1
    return summarize(prof.recording)


SUMMARY = summary()


def test_throughput_is_in_the_runs_own_unit_and_in_every_other_that_was_counted():
    found = SUMMARY.throughput

    assert found is not None
    assert found.rate.per_s == pytest.approx((36 + 100) / 0.4)
    ((unit, rate),) = [(other.unit, other.rate.per_s) for other in found.others]
    assert (unit, rate) == ("sentences", pytest.approx(8 / 0.4))
    assert found.drifted is False


def test_samples_are_those_that_were_counted_and_no_multiple_of_the_batch_size():
    found = document(SUMMARY)["throughput"]

    assert found["samples_per_s"] == pytest.approx(8 / 0.4)
    assert found["unit"] == {"name": "tokens", "per_s": pytest.approx(340)}
    assert found["other_units"][0]["name"] == "sentences"


def test_padding_is_a_share_of_what_was_computed_and_no_work():
    assert document(SUMMARY)["throughput"]["padding"] == {"tokens": pytest.approx(24 / (24 + 136))}


def test_flops_are_divided_by_the_work_of_the_counted_steps_in_each_unit():
    use = SUMMARY.utilization

    assert use is not None
    assert use.flops_per_unit == {
        "tokens": pytest.approx(2 * use.flops_per_step / 136),
        "sentences": pytest.approx(2 * use.flops_per_step / 8),
    }
    assert use.flops_per_sample == use.flops_per_unit["sentences"]


def test_the_memory_window_says_which_lengths_it_saw_beside_those_of_the_whole_run():
    assert document(SUMMARY)["memory"]["lengths"] == [
        {"name": "source", "in_memory_window": [10.0, 30.0], "shortest": 10.0, "longest": 30.0}
    ]


def test_the_terminal_shows_each_unit_the_padding_and_the_lengths():
    text = terminal.render(SUMMARY, color=False)

    assert "tokens/s in the clean windows" in text
    assert "sentences/s" in text
    assert "15.0 % of the tokens that were computed; not counted as work" in text
    assert "longest source of a step: 10, 30 in the memory window, 10 to 30 in the whole run" in text
    assert "FLOP a token" in " ".join(text.split())


def test_the_counts_of_steps_are_exported_by_name(tmp_path: Path):
    export.write(SUMMARY.recording, tmp_path / "plain.sqlite", "sqlite")

    with closing(sqlite3.connect(tmp_path / "plain.sqlite")) as connection:
        rows = connection.execute("SELECT kind, name, sum(value) FROM step_count WHERE window = 2 GROUP BY kind, name")
        assert rows.fetchall() == [("length", "source", 50), ("padding", "tokens", 28), ("units", "sentences", 12)]
