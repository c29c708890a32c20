"""Collectors beside the hook: on in their windows alone, and none of them in the way of the loop."""

from fakes import FakeClock, FakeHook
from make import run
from plain_rows import table

from tbdprof.collect import Collected, Collector
from tbdprof.errors import UnavailableError
from tbdprof.facts.records import Strings
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.plan import WITH_SAMPLED, Plan
from tbdprof.loop.profiler import LoopProfiler

PLAN = Plan(warmup=2, steps=4, memory_steps=3, kernel_steps=3, windows=WITH_SAMPLED)


class FakeCollector:
    """Counts its calls, and samples one value a window."""

    name = "fake"

    def __init__(self, refusal: str | None = None) -> None:
        self.refusal = refusal
        self.calls: list[str] = []

    def start(self, window: str) -> None:
        if self.refusal:
            raise UnavailableError(self.refusal)
        self.calls.append(window)

    def stop(self) -> None:
        self.calls.append("stop")

    def drain(self, strings: Strings) -> Collected:
        return Collected({"sample": table("sample", [(strings.add("fake"), -1, 0, 7.0)])}, {"part": "not had"})

    def close(self) -> None:
        self.calls.append("close")


def profiled(collector: Collector, steps: int = 40) -> LoopProfiler:
    hook = FakeHook(clock=FakeClock())
    instruments = Instruments({"kernels": [collector], "sampled": [collector]}, WITH_SAMPLED, {"else": "not here"})
    with LoopProfiler(hook, run(), PLAN, clock=hook.clock, instruments=instruments) as prof:
        for _ in range(steps):
            hook.clock.sleep(0.1)
            prof.step(8)
    return prof


def test_a_collector_is_on_in_its_windows_alone_and_closed_once():
    collector = FakeCollector()
    prof = profiled(collector)

    assert collector.calls == ["kernels", "stop", "sampled", "stop", "close"]
    sampled = {window.name for window in prof.recording.windows if len(window.table("sample"))}
    assert sampled == {"kernels", "sampled"}
    assert prof.recording.missing["part"] == "not had"
    assert prof.recording.missing["else"] == "not here"


def test_one_that_cannot_start_is_left_out_with_its_reason():
    collector = FakeCollector(refusal="no permission")
    prof = profiled(collector)

    assert collector.calls == ["close"]
    assert prof.recording.missing["fake"] == "no permission"
    assert prof.recording.run.complete
    assert [len(window.table("step")) for window in prof.recording.named("sampled")] == [3]


def test_what_was_recorded_is_kept_where_the_loop_fails():
    collector = FakeCollector()
    hook = FakeHook(clock=FakeClock())
    instruments = Instruments({"memory": [collector]})
    prof = LoopProfiler(hook, run(), PLAN, clock=hook.clock, instruments=instruments)
    prof.start()
    for _ in range(8):
        hook.clock.sleep(0.1)
        prof.step(8)
    prof.stop("ZeroDivisionError")

    assert collector.calls == ["memory", "stop", "close"]
    assert [len(window.table("sample")) for window in prof.recording.named("memory")] == [1]


def test_samples_a_window_ended_with_say_of_which_time_they_are():
    rows = table("sample", [(0, -1, 5, 1.0)])

    assert rows["start_ns"].tolist() == [-1]
