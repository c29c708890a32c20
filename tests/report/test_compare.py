"""The report of a comparison, from results made by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from report_results import CONVOLUTION, LAYERS, NORMALIZATION, TIME

import tbdprof
from tbdprof.analysis.comparison.files import compare
from tbdprof.facts.records import Role
from tbdprof.report import compare as report
from tbdprof.report.terminal_parts.change_tables import change_text, interval_text, value_text
from tbdprof.results.compare import BETWEEN, EXACT, Change
from tbdprof.results.summary import Summary

FIXTURE = Path(__file__).parents[1] / "fixtures" / "format-5-torch.tbd"


@pytest.fixture(scope="module")
def summary() -> Summary:
    """Return a summary with kernels and layers worked out by hand."""
    return replace(tbdprof.load(FIXTURE).summary, step_time=TIME, groups=(CONVOLUTION, NORMALIZATION), layers=LAYERS)


def test_two_sides_have_their_facts_their_answer_and_a_table_of_each_subject(summary: Summary):
    assert summary.memory is not None
    memory = replace(summary.memory, roles_at_peak={**summary.memory.roles_at_peak, Role.INPUT: 2048})
    grown = replace(summary, groups=(replace(CONVOLUTION, seconds=0.13),), memory=memory)

    text = report.render(compare(summary, grown), width=80)

    order = (
        "The facts of the runs are the same",
        "no difference between B and A shows",
        "B against A",
        "Time of a step in the kernels windows, by phase",
        "Memory at the peak, by category and role",
        "Kernels by the change of their time",
    )
    places = [text.index(title) for title in order]
    assert places == sorted(places)
    rows = [line.split() for line in text.splitlines()]
    assert ["aten::mkldnn_convolution", "forward", "100.00", "ms", "130.00", "ms", "+30.0", "%", "+17.6", "%"] in rows
    assert [row[-3:] for row in rows if "went" in row] == [["went", "-23.5", "%"]]
    assert ["input", "128", "B", "2.00", "KiB", "+1500.0", "%"] in rows
    assert max(map(len, text.splitlines())) <= 80


def test_memory_that_is_the_same_is_one_line(summary: Summary):
    assert "\nMemory at the peak: the same in every category and role\n" in report.render(compare(summary, summary))


def test_what_differs_stands_first(summary: Summary):
    other = replace(summary.recording, run=replace(summary.recording.run, threads=2, device_name="other"))

    lines = report.render(compare(summary, replace(summary, recording=other)), width=80).splitlines()

    assert lines[3] == "What differs"
    assert ["threads", "1", "2"] in [line.split() for line in lines[4:8]]


def test_of_more_than_two_sides_each_has_a_line_and_tables_of_its_own(summary: Summary):
    text = report.render(compare(summary, summary, summary), width=120)

    assert [text.count(line) for line in ("no difference between B and A", "no difference between C and A")] == [1, 1]
    assert text.index("B against A") < text.index("C against A")


def test_a_change_reads_as_people_say_it():
    change = Change("step time", "step_time", "s", 0.1, 0.09, 0.9, (0.85, 0.95), basis=BETWEEN)

    assert (value_text(0.1, "s"), change_text(change), interval_text(change)) == (
        "100.00 ms",
        "-10.0 %",
        "[-15.0, -5.0] %",
    )
    assert interval_text(replace(change, basis=EXACT)) == ""
    assert interval_text(replace(change, interval=(0.5, 1e9))) == "[-50.0, …] %"
    assert change_text(replace(change, other=0.1)) == "same"
    assert change_text(replace(change, other=None, reason="went")) == "went"
    assert change_text(Change("idle", "idle", "B", 0.0, 2048.0)) == "+2.00 KiB"
    assert [value_text(0.25, "share"), value_text(1234.0, "samples/s"), value_text(3.14159, "")] == [
        "25.0 %",
        "1,234 samples/s",
        "3.142",
    ]


def test_json_is_plain_values_with_a_change_for_each_figure(summary: Summary):
    found = json.loads(report.render_json(compare(summary, summary)))

    (pair,) = found["comparisons"]
    assert pair["verdict"] == "no difference"
    assert {each["path"]: each["change"] for each in pair["figures"]}["peak_memory"] == 0
    assert pair["throughput"]["interval_covers"].startswith("within a run")
    assert {each["name"] for each in pair["layers"]} == {each.layer for each in LAYERS}
