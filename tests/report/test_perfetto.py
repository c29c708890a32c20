"""The trace for Perfetto: valid by the format's rules, and the recording's own names and times."""

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make import KernelStory

from tbdprof.analysis.memory.breakdown import measure
from tbdprof.facts.file.reading import load
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Phase, SpanKind
from tbdprof.report import perfetto
from tbdprof.results.memory import Timeline

FIXTURES = Path(__file__).parents[1] / "fixtures"
OF_FORMAT = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "M": {"name", "pid", "args"},
    "C": {"name", "pid", "ts", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
}
Events = list[dict[str, Any]]


def trace(recording: Recording, folder: Path, memory: Timeline | None = None) -> dict[str, Any]:
    perfetto.write(recording, memory, folder / "a.json.gz")
    with gzip.open(folder / "a.json.gz", "rt", encoding="ascii") as file:
        return json.load(file, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def of(events: Events, kind: str, **wanted: object) -> Events:
    return [each for each in events if each["ph"] == kind and all(each.get(k) == v for k, v in wanted.items())]


def nested(slices: Events) -> bool:
    """Return whether slices of one thread lie within each other or apart."""
    ends: list[int] = []
    for each in sorted(slices, key=lambda each: (each["ts"], -each["dur"])):
        start, end = round(each["ts"] * 1000), round(each["ts"] * 1000) + round(each["dur"] * 1000)
        while ends and ends[-1] <= start:
            ends.pop()
        if ends and end > ends[-1]:
            return False
        ends.append(end)
    return True


@pytest.fixture
def story() -> KernelStory:
    story = KernelStory(device="cuda:0")
    story.step(1000, 9000)
    phase = story.span(SpanKind.PHASE, "", Phase.FORWARD, 1000, 6000)
    layer = story.layer("conv", 2000, 5000, parent=phase)
    operator = story.operator("aten::conv2d", Phase.FORWARD, 2000, 4001, parent=layer)
    story.kernel("gemm", 5123, 6456, span=operator, launch=3000, thread=1, grid="[1,2,3]")
    story.kernel("gemm", 6456, 7000, span=operator)
    story.wait(7000, 8000)
    return story


def test_every_event_is_one_of_the_format(story: KernelStory, tmp_path: Path) -> None:
    events = trace(story.recording(), tmp_path)["traceEvents"]

    for event in events:
        assert OF_FORMAT[event["ph"]] <= event.keys()
        assert all(isinstance(event[name], int) for name in ("pid", "tid") if name in event)
        assert all(event.get(name, 0) >= 0 for name in ("ts", "dur"))
    named = {event["pid"] for event in of(events, "M", name="process_name")}
    assert {event["pid"] for event in events} == named


def test_times_are_those_of_the_recording_to_the_nanosecond(story: KernelStory, tmp_path: Path) -> None:
    events = trace(story.recording(), tmp_path)["traceEvents"]

    (operator,) = of(events, "X", name="aten::conv2d")
    first, second = of(events, "X", name="gemm")
    assert (operator["ts"], operator["dur"], operator["args"]["phase"]) == (2.0, 2.001, "forward")
    assert (first["ts"], first["dur"], second["dur"]) == (5.123, 1.333, 0.544)
    assert first["args"]["grid"] == "[1,2,3]"


def test_an_arrow_leads_from_the_launch_to_the_kernel_and_none_is_guessed(story: KernelStory, tmp_path: Path) -> None:
    events = trace(story.recording(), tmp_path)["traceEvents"]

    (start,), (end,) = of(events, "s"), of(events, "f")
    assert start["id"] == end["id"]
    assert (start["pid"], start["tid"], start["ts"]) == (perfetto.HOST, 1, 3.0)
    assert (end["pid"], end["tid"], end["ts"]) == (perfetto.FIRST_DEVICE, 7, 5.123)


def test_memory_is_a_counter_for_each_category(story: KernelStory, tmp_path: Path) -> None:
    timeline = Timeline(1, np.array([1500, 2500]), {"weights": np.array([10, 20]), "dynamic": np.array([0, 5])})

    events = trace(story.recording(), tmp_path, timeline)["traceEvents"]

    found = of(events, "C", name="memory by category (bytes)")
    assert [(each["ts"], each["args"]) for each in found] == [
        (1.5, {"weights": 10, "dynamic": 0}),
        (2.5, {"weights": 20, "dynamic": 5}),
    ]


@pytest.mark.parametrize("name", ["format-5-torch", "format-5-mxnet", "format-5-tensorflow"])
def test_a_real_recording_nests_and_adds_up(name: str, tmp_path: Path) -> None:
    recording = load(FIXTURES / f"{name}.tbd")
    memory = measure(recording).value

    events = trace(recording, tmp_path, None if memory is None else memory.timeline)["traceEvents"]

    threads: dict[tuple[int, int], Events] = defaultdict(list)
    for event in of(events, "X"):
        threads[event["pid"], event["tid"]].append(event)
    assert all(nested(slices) for slices in threads.values())
    expected: Counter[str] = Counter()
    for window in recording.windows:
        for row in window.table("span"):
            if row["kind"] == SpanKind.OPERATOR:
                expected[recording.strings[row["name"]]] += int(row["end_ns"] - row["start_ns"])
    found: Counter[str] = Counter()
    for event in of(events, "X", cat="operator"):
        found[event["name"]] += round(event["dur"] * 1000)
    assert found == expected
    steps = sum(len(window.table("step")) for window in recording.windows)
    assert len(of(events, "X", pid=perfetto.LOOP, tid=perfetto.STEPS)) == steps
    totals = [sum(each["args"].values()) for each in of(events, "C", name="memory by category (bytes)")]
    assert max(totals, default=0) == (0 if memory is None else sum(memory.roles_at_peak.values()))


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    names = ['"},{"ph":"X"', "</script>", "\x1b[31m", "\u202eabc", "\ud800", "x" * 100_000]
    story = KernelStory(device="cuda:0")
    story.step(0, 100)
    for place, name in enumerate(names):
        story.operator(name, Phase.FORWARD, 10 * place, 10 * place + 5)

    text = trace(story.recording(model="\n"), tmp_path)

    assert [event["name"] for event in of(text["traceEvents"], "X", cat="operator")] == [
        *names[:4],
        r"\ud800",
        names[5],
    ]


def test_a_million_kernels_are_written_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces join to the same trace, whatever their size."""
    story = KernelStory(device="cuda:0")
    story.step(0, 10_000)
    for place in range(250):
        story.kernel(f"k{place}", 10 * place, 10 * place + 5)
    whole = trace(story.recording(), tmp_path)

    for size in (1, 7, 1000):
        monkeypatch.setattr(perfetto, "_AT_ONCE", size)
        assert trace(story.recording(), tmp_path) == whole
