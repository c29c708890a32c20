"""A sweep's results as rows, for programs."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import tbdprof
from tbdprof.errors import RecordingFormatError, UnavailableError, UsageError
from tbdprof.report.sweep import render
from tbdprof.results.sweep import End, Sweep, SweepPoint
from tbdprof.sweep.folder import opened
from tbdprof.sweep.outcome import Outcome
from tbdprof.sweep.plan import Plan, Script

RECORDING = Path(__file__).parents[1] / "fixtures/format-5-torch.tbd"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Return a sweep of four points: one finished, one full, one whose file is damaged, one that has not ended."""
    folder = opened(tmp_path_factory.mktemp("rows") / "s", Plan(Script(("fake", "{bs}")), {"bs": ("1", "2", "4", "8")}))
    full = Outcome(End.OUT_OF_MEMORY, "none left", 3.0, "here")
    for settings, found in zip(
        folder.plan.combinations(), (Outcome(End.FINISHED), full, Outcome(End.FINISHED)), strict=False
    ):
        folder.keep(folder.plan.point(settings), found)
    (folder.points / "bs=1.tbd").write_bytes(RECORDING.read_bytes())
    (folder.points / "bs=4.tbd").write_bytes(b"no recording")
    return tbdprof.load_sweep(folder.path)


def test_rows_are_the_points_that_have_ended(sweep: Sweep) -> None:
    rows = sweep.rows

    assert [(row.settings["bs"], row.end) for row in rows] == [
        ("1", "finished"),
        ("2", "out of memory"),
        ("4", "failed"),
    ]
    assert (rows[1].seconds, rows[1].machine, rows[1].reason, rows[1].per_s) == (3.0, "here", "none left", None)
    assert "is not a" in str(rows[2].reason)


def test_the_figures_of_a_row_are_those_of_its_recording(sweep: Sweep) -> None:
    row, summary = sweep.rows[0], tbdprof.load(RECORDING).summary

    assert summary.throughput is not None
    assert summary.memory is not None
    rate = summary.throughput.in_samples(summary.recording.run)
    assert rate is not None
    assert rate.interval is not None
    assert (row.per_s, (row.per_s_low, row.per_s_high)) == (rate.per_s, rate.interval)
    assert row.peak_bytes == summary.memory.peak_bytes
    assert row.category_bytes is not None
    assert row.category_bytes["weights"] == summary.memory.category_at_peak("weights")


def test_the_report_names_machines_if_there_are_several(sweep: Sweep) -> None:
    assert "machine" not in render(sweep, width=200)

    points = (replace(sweep.points[0], machine="there"), *sweep.points[1:])
    lines = render(replace(sweep, points=points), width=200).splitlines()

    assert lines[1].split()[-1] == "machine"
    assert [line.split()[-1] for line in lines[3:5]] == ["there", "here"]


def test_rows_without_pandas_say_what_to_install(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(UnavailableError, match="pip install pandas"):
        sweep.rows.to_pandas()


def test_no_row_is_lost_where_nothing_was_measured() -> None:
    (row,) = Sweep("t", ("n",), "", (SweepPoint("n=1", {"n": "1"}, End.FAILED, "why", None, None, None),), (), 0).rows

    assert (row.name, row.end, row.reason, row.category_bytes) == ("n=1", "failed", "why", None)


def test_what_is_no_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no sweep"):
        tbdprof.load_sweep(tmp_path)
    with pytest.raises(UsageError, match=r"is a folder: .* tbdprof.load_sweep"):
        tbdprof.load(tmp_path)
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(RecordingFormatError, match="is no plan of a sweep"):
        tbdprof.load_sweep(str(tmp_path))
