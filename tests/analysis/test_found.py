"""A result beside the reasons for what it lacks."""

import pytest
from make import run, timed_window

from tbdprof.analysis.memory.breakdown import measure
from tbdprof.analysis.summary import NAMES, summarize
from tbdprof.analysis.time.given import given
from tbdprof.analysis.time.throughput import overhead, throughput
from tbdprof.facts.recording import Recording
from tbdprof.results.found import Found, because, reasons


def test_reasons_stand_under_the_place_of_the_result() -> None:
    found = Found(1, {"": "all", "a.b": "part"})

    assert found.under("x") == {"x": "all", "x.a.b": "part"}
    assert Found(1, {"a.b": "part"}).under("") == {"a.b": "part"}


def test_only_what_is_none_has_a_reason() -> None:
    assert reasons({"none": (None, "no facts"), "zero": (0, "?"), "empty": ((), "?")}) == {"none": "no facts"}


def test_a_missing_result_has_one_reason_and_may_have_remarks() -> None:
    found = because("no facts", {"other devices": "left out"})

    assert (found.value, found.reason, found.missing) == (None, "no facts", {"": "no facts"})
    assert found.remarks == {"other devices": "left out"}
    assert Found(3).reason is None


def test_an_analysis_gives_the_reason_with_the_result() -> None:
    recording = Recording(run(batch_size=None), [timed_window(0, "clean", [2.0])])

    assert measure(recording).reason == summarize(recording).missing["memory"]
    assert set(throughput(recording, given(recording)).missing) == {"ci95", "data_wait"}
    assert overhead(recording, "kernels").reason is not None


def test_a_reason_of_the_recording_replaces_one_of_an_analysis() -> None:
    recording = Recording(run(), [timed_window(0, "clean", [2.0])])
    recording.missing["memory"] = "profiling was disabled"

    assert summarize(recording).missing["memory"] == "profiling was disabled"


def test_a_remark_is_no_reason_and_stands_among_the_missing_as_well() -> None:
    recording = Recording(run(), [timed_window(0, "clean", [2.0])])
    recording.missing |= {"threads": "they cannot join", "peaks": "no probe"}

    summary = summarize(recording)

    assert summary.remarks == {"threads": "they cannot join"}
    assert {"threads", "peaks"} <= summary.missing.keys()


@pytest.mark.parametrize("name", [*NAMES.values()])
def test_a_name_of_the_report_is_of_one_part_alone(name: str) -> None:
    assert [*NAMES.values()].count(name) == 1
