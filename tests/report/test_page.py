"""The page: its figures are those of the JSON report, names stay text, and nothing is left out unsaid."""

import json
import re
import sys
from pathlib import Path

import pytest
from fake_loop import WHOLE, profiler, train
from kernel_stories import summary_of, training_story
from page_elements import Elements, differences
from page_stories import EVIL, SCRIPT, SHOWN, compared, comparison_of, fixture, hostile, rendered, sweep_of, swept
from report_results import measured

from tbdprof.analysis.summary import summarize
from tbdprof.errors import UnavailableError
from tbdprof.report import compare, json_report
from tbdprof.report import sweep as sweep_report
from tbdprof.report.page import render, words
from tbdprof.report.page.figures import leaves
from tbdprof.report.page.look import OF_PHASE
from tbdprof.report.page.texts import MOST, embedded, in_chart, shortened
from tbdprof.report.terminal_parts import overview
from tbdprof.results.summary import Summary

ROOT = Path(__file__).parents[2]

NOT_FIGURES = ("/missing/", "/low_utilization/uncounted/")
OF_ROWS = {"share", "seconds", "calls", "utilization", "headroom", "flops", "forward_seconds", "backward_seconds"}

pytest.importorskip("jinja2")


@pytest.fixture(autouse=True)
def light_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the charting library be a line, except where a test asks for it: it is 5 MB."""
    monkeypatch.setattr(render, "_library", lambda: "/* the library */")


def page_and_document(summary: Summary) -> tuple[Elements, dict[str, object]]:
    page = rendered(summary)
    return Elements(page), json.loads(json_report.render(summary))


@pytest.mark.parametrize("name", ["format-5-torch.tbd", "format-5-mxnet.tbd", "format-5-tensorflow.tbd"])
def test_every_figure_of_the_page_is_that_of_the_json_report(name: str):
    summary = fixture(name)

    elements, document = page_and_document(summary)

    assert differences(elements, document) == []
    values = {path: value for path, value in leaves(document) if not path.startswith(NOT_FIGURES)}
    of_rows = {path for path in values if re.match(r"/(kernels|low_utilization/rows|time_by_layer)/\d+/", path)}
    assert values.keys() - of_rows <= elements.figures.keys()
    expected = {path for path in of_rows if path.rpartition("/")[2] in OF_ROWS and values[path] is not None}
    assert len(expected) > 20
    assert expected <= elements.figures.keys()


def test_a_figure_that_differs_is_found():
    elements, document = page_and_document(fixture("format-5-torch.tbd"))
    document["throughput"]["unit"]["per_s"] *= 1.001  # type: ignore[index]

    (found,) = differences(elements, document)

    assert found.startswith("/throughput/unit/per_s: ")


def test_the_first_screen_has_the_lines_of_the_terminal():
    summary = measured(fixture("format-5-torch.tbd"))

    elements, _ = page_and_document(summary)

    assert summary.verdict is not None
    assert summary.verdict.sentence in elements.text
    for label, text in overview.figures(summary):
        assert label in elements.text
        assert text.plain in elements.text


def test_each_reason_for_what_is_missing_is_on_the_page():
    summary = fixture("format-5-mxnet.tbd")

    elements, _ = page_and_document(summary)

    assert summary.missing
    for name, reason in summary.missing.items():
        assert name in elements.text
        assert reason in elements.text


def test_every_figure_of_a_comparison_is_that_of_its_json():
    comparison = comparison_of("format-5-torch.tbd", "format-5-mxnet.tbd")

    elements = Elements(compared(comparison))

    document = json.loads(compare.render_json(comparison))
    assert differences(elements, document) == []
    values = {path: value for path, value in leaves(document) if path.endswith(("/baseline", "/other"))}
    there = {path for path, value in values.items() if isinstance(value, float | int)}
    of_names = re.compile("/(kernels|layers)/")  # which are other ones in another framework
    there = {path for path in there if comparison.pairs[0].same_names or not of_names.search(path)}
    assert len(there) > 30
    assert there <= elements.figures.keys()


def test_every_figure_of_a_sweeps_points_is_that_of_its_json():
    elements = Elements(swept())

    document = json.loads(sweep_report.render_json(sweep_of()))
    assert differences(elements, document) == []
    names = ("rate/per_s", "step_seconds", "peak_bytes", "busy", "fp32")
    assert {f"/points/{place}/figures/{name}" for place in range(3) for name in names} <= elements.figures.keys()
    assert "out of memory" in elements.text


def test_names_in_a_sweep_stay_text():
    calm, evil = Elements(swept("calm")), Elements(swept(EVIL))

    assert evil.tags == calm.tags
    assert evil.attributes == calm.attributes
    assert SHOWN in evil.text
    assert "<script>document" not in str(evil.data["charts"])


def test_names_that_mean_harm_stay_text():
    calm, _ = page_and_document(hostile("calm"))

    elements, _ = page_and_document(hostile())

    assert elements.tags == calm.tags  # no name made an element
    assert elements.attributes == calm.attributes
    assert SHOWN in elements.text
    assert "49" not in elements.text.partition("gnp")[2][:60]  # no template in a name is filled
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", elements.text) == []
    for script in elements.scripts:
        assert SCRIPT not in script
    assert "<script>document" not in str(elements.data["charts"])  # Plotly would read tags in its labels


def test_a_name_of_a_megabyte_is_cut_and_its_length_is_said():
    page = rendered(hostile("x" * 1_000_000))

    assert len(page) < 2_000_000
    assert "(1,000,000 characters)" in page


def test_the_policy_of_the_page_lets_no_other_script_run_and_loads_nothing():
    page = rendered(fixture("format-5-torch.tbd"))

    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src &#39;none&#39;" in policy
    assert policy.count("sha256-") == 3
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page) == []


def test_embedded_data_ends_no_element_and_comes_back():
    value = {SCRIPT: ["<!--", "&amp;", "\u2028", EVIL]}

    text = embedded(value)

    assert not set("<>&") & set(text)
    assert json.loads(text) == value


def test_a_label_of_a_chart_has_no_markup():
    assert in_chart("<b>x</b> & y") == "&lt;b&gt;x&lt;/b&gt; &amp; y"


def test_a_short_text_stays_and_a_long_one_is_cut_in_the_middle():
    assert shortened("conv1") == "conv1"
    cut = shortened("a" * 500 + "b" * 500)
    assert cut.startswith("aaa")
    assert cut.endswith("bbb")
    assert len(cut) < MOST + 40


def test_the_definitions_are_those_of_the_glossary():
    text = (ROOT / "docs" / "glossary.md").read_text()
    entries = re.findall(r"^\*\*(.+?)\.?\*\*\s(.*?)(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    plain = {name: re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", said) for name, said in entries}
    plain = {name: " ".join(said.replace("*", "").replace("`", "").split()) for name, said in plain.items()}

    assert {name: plain.get(name) for name in words.DEFINITIONS} == words.DEFINITIONS


def test_plotly_takes_every_chart():
    graph_objects = pytest.importorskip("plotly.graph_objects")
    summary = fixture("format-5-torch.tbd")

    data = page_and_document(summary)[0].data | {}
    story = page_and_document(summary_of(training_story()))[0].data

    for name, spec in [*data["charts"].items(), *story["charts"].items()]:
        assert graph_objects.Figure(spec).data, name
    assert {"phases", "breakdown", "timeline", "layers", "steps"} <= data["charts"].keys()
    assert "roofline" in story["charts"]


def test_the_colours_differ_for_readers_with_colour_blindness():
    """The eight colours of Okabe and Ito were chosen for that; the test keeps out others."""
    okabe_ito = {"#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#8A8F98"}

    assert set(OF_PHASE.values()) <= okabe_ito


def test_without_a_library_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)

    with pytest.raises(UnavailableError, match=r"a page needs Jinja2.*pip install 'tbdprof\[page\]'"):
        render.refuse_without_libraries()


def test_a_page_without_any_window_says_why():
    prof, hook = profiler(WHOLE)
    with prof:
        train(prof, hook.clock, 1)

    elements, document = page_and_document(summarize(prof.recording))

    assert differences(elements, document) == []
    assert "Not measured: " in elements.text
    assert elements.data["memory"] is None
