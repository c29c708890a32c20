"""The share of the clean windows in which the loop waited for batches, from a counter it keeps."""

import pytest
from fakes import FakeClock, FakeHook
from make import run

from tbdprof.analysis.summary import summarize
from tbdprof.analysis.time.throughput import data_wait
from tbdprof.collect.host_load import OF_HOST, HostLoad
from tbdprof.facts.counters import DATA_WAIT
from tbdprof.facts.recording import Recording
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.plan import Plan
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.report import json_report, terminal

PLAN = Plan(warmup=2, steps=10, memory_steps=3)


def profiled(wait_s: float, *, reports: bool = True) -> Recording:
    """Return a run whose every step takes 0.1 s beside the time it waits for its batch; watched steps wait longer."""
    hook, waited = FakeHook(clock=FakeClock()), [7.0]  # other loops of the process waited before
    counters = {DATA_WAIT: lambda: waited[0]} if reports else {}
    instruments = Instruments({"clean": [HostLoad({**OF_HOST, **counters}, hook.clock)]})
    with LoopProfiler(hook, run(), PLAN, clock=hook.clock, instruments=instruments) as prof:
        while prof.active:
            watched = hook.calls.count("stop") < sum(call.startswith("start") for call in hook.calls)
            mine = 5 * wait_s if watched else wait_s
            waited[0] += mine
            hook.clock.sleep(mine + 0.1)
            prof.step(8)
    return prof.recording


@pytest.mark.parametrize(("wait_s", "share"), [(0.0, 0.0), (0.025, 0.2), (0.1, 0.5)])
def test_waiting_is_a_share_of_the_clean_windows_alone(wait_s: float, share: float):
    assert data_wait(profiled(wait_s)).value == pytest.approx(share)


def test_a_loop_that_does_not_report_has_no_share_and_a_reason():
    recording = profiled(0.1, reports=False)
    summary = summarize(recording)

    assert data_wait(recording).value is None
    assert json_report.document(summary)["throughput"]["data_wait"] is None
    assert summary.missing["throughput.data_wait"] == "the loop did not report it"
    assert "throughput.data_wait" not in summary.missing_now


@pytest.mark.parametrize(
    ("wait_s", "line"), [(0.025, "the loop waited for batches 20.0 % of a clean step"), (0.0, None)]
)
def test_the_first_screen_shows_it_where_there_is_any(wait_s: float, line: str | None):
    summary = summarize(profiled(wait_s))

    shown = [text.split(maxsplit=1) for text in terminal.render(summary).splitlines() if text.startswith("loading")]
    assert shown == ([] if line is None else [["loading", line]])
    assert "throughput.data_wait" not in summary.missing
