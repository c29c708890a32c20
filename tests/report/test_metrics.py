"""A run's figures for loggers and for Prometheus: those of the JSON report, and nothing where it has none."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from make import run
from report.test_reporters import EMPTY, FULL, profiled

import tbdprof
from tbdprof.analysis.comparison.files import compare
from tbdprof.analysis.comparison.gate import judge
from tbdprof.analysis.comparison.limits import parse
from tbdprof.analysis.summary import summarize
from tbdprof.facts.recording import Recording
from tbdprof.report import json_report
from tbdprof.report.metrics import openmetrics
from tbdprof.report.metrics.flat import figures, flat
from tbdprof.results.memory import CATEGORIES
from tbdprof.results.summary import Summary

FIXTURES = Path(__file__).parent.parent / "fixtures"
EVIL = 'a"b\\c\n[red]\x1b[31m\u202e{x="1"} 5 # EOF \ud800'
Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", params=["format-1", "format-5-torch", "format-5-mxnet", "format-5-tensorflow"])
def summary(request: pytest.FixtureRequest) -> Summary:
    return tbdprof.load(FIXTURES / f"{request.param}.tbd").summary


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a JSON document outside of lists, by their paths."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from numbers(each, f"{path}.{name}".lstrip("."))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def test_the_flat_figures_are_the_numbers_of_the_json(summary: Summary) -> None:
    document = json.loads(json_report.render(summary))

    assert figures(summary) == dict(numbers(document))
    assert len(figures(summary)) > 50


def test_with_rows_each_kernel_has_its_figures(summary: Summary) -> None:
    document, found = json.loads(json_report.render(summary)), figures(summary, rows=True)

    assert figures(summary).items() <= found.items()
    for kernel in document["kernels"] or []:
        rows = [
            each for each in document["kernels"] if (each["name"], each["phase"]) == (kernel["name"], kernel["phase"])
        ]
        assert found[f"kernels[{kernel['name']} {kernel['phase'] or ''}].seconds"] == rows[-1]["seconds"]


def test_every_flat_figure_is_one_that_a_limit_can_be_set_on() -> None:
    summaries = [tbdprof.load(FIXTURES / "format-5-torch.tbd").summary] * 2
    documents = [[json_report.document(each)] for each in summaries]
    found = figures(summaries[0])

    limits = [parse(f"{name} < {value:f}") for name, value in found.items() if not name.endswith("_s") and value >= 0]
    judged = judge(compare(*summaries), documents, limits, anyway=True).judged
    assert [each.change.other for each in judged] == pytest.approx([found[each.limit.figure] for each in judged])
    assert len(judged) > 80


def test_a_profiler_gives_its_flat_figures() -> None:
    given = flat(summarize(profiled(FULL)))

    assert given.figures() == figures(given)
    assert given.figures(rows=True) == figures(given, rows=True)
    assert tbdprof.figures(given) == figures(given)
    assert json_report.render(given) == json_report.render(summarize(profiled(FULL)))


# For Prometheus.

parser = pytest.importorskip("prometheus_client.openmetrics.parser")
older = pytest.importorskip("prometheus_client.parser")


def samples(text: str, of: Any = None) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the values by name and labels, as the real parser reads them."""
    families = list((of or parser).text_string_to_metric_families(text))
    assert {family.type for family in families} == {"gauge"}
    found = [
        (sample.name, frozenset(sample.labels.items()), sample.value) for each in families for sample in each.samples
    ]
    assert len({each[:2] for each in found}) == len(found)
    return {(name, labels): value for name, labels, value in found}


def of(found: dict[Any, float], name: str, **labels: str) -> float:
    """Return the only value of a metric that has these labels."""
    (value,) = [each for (known, has), each in found.items() if known == f"tbdprof_{name}" and labels.items() <= has]
    return value


def test_the_metrics_are_valid_in_both_formats_and_the_numbers_of_the_json(summary: Summary) -> None:
    text, document = openmetrics.render(summary), json.loads(json_report.render(summary))
    found = samples(text)

    assert samples(text, older) == found  # the textfile collector reads the older format
    at_peak = {} if document["memory"] is None else document["memory"]["at_peak"]
    for category in CATEGORIES.keys() & at_peak.keys():
        assert of(found, "memory_at_peak_bytes", category=category) == at_peak[category]
        roles = CATEGORIES[category]
        of_category = [
            of(found, "memory_role_at_peak_bytes", category=category, role=role.name.lower()) for role in roles
        ]
        assert sum(of_category) == document["memory"]["at_peak"][category]
    assert of(found, "units_per_second", unit=document["throughput"]["unit"]["name"]) == pytest.approx(
        document["throughput"]["unit"]["per_s"]
    )
    assert {
        ("model", summary.recording.run.model),
        ("framework", summary.recording.run.framework),
    } <= frozenset.intersection(*(labels for _, labels in found))


def test_every_metric_of_the_table_has_the_numbers_at_its_path(summary: Summary) -> None:
    document, found = json.loads(json_report.render(summary)), samples(openmetrics.render(summary))
    said = {f"run.{name}": document["run"][name] for name in ("complete", "settled")}
    flat_json = dict(numbers(document)) | {path: float(yes) for path, yes in said.items() if yes is not None}

    for metric in openmetrics.METRICS:
        path = re.compile(re.escape(metric.path).replace(r"\*", "[^.]+"))
        expected = [value for name, value in flat_json.items() if path.fullmatch(name)]
        mine = [value for (name, _), value in found.items() if name == f"tbdprof_{metric.name}"]
        assert sorted(mine) == sorted(expected), metric


def test_what_was_not_measured_is_left_out_and_not_0() -> None:
    found = samples(openmetrics.render(summarize(profiled(EMPTY))))  # it ended in its warm-up

    names = {name for name, _ in found}
    assert not [name for name in names if "memory" in name or "per_second" in name or "busy" in name]
    assert of(found, "complete") == 0


def test_hostile_names_stay_within_their_quotes() -> None:
    text = openmetrics.render(summarize(Recording(run(model=EVIL, framework_version=EVIL, started=EVIL))))
    found = samples(text)

    assert {dict(labels)["model"] for _, labels in found} == {'a"b\\c\\n[red]\\x1b[31m\\u202e{x="1"} 5 # EOF \\ud800'}
    assert text.count("\n# EOF") == 1
    assert text.encode().isascii()


def test_the_command_writes_the_file_at_once_and_replaces_it_only_if_asked_to(typed: Typed, tmp_path: Path) -> None:
    words = (
        "export",
        str(FIXTURES / "format-5-torch.tbd"),
        "-o",
        str(tmp_path / "tbdprof.prom"),
        "--format",
        "openmetrics",
    )

    assert typed(*words) == (0, "", "")
    first = (tmp_path / "tbdprof.prom").read_bytes()
    assert samples(first.decode())
    code, _, err = typed(*words)
    assert (code, err.count("\n")) == (2, 1)
    (tmp_path / "tbdprof.prom").write_text("older")
    assert typed(*words, "--force") == (0, "", "")
    assert (tmp_path / "tbdprof.prom").read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == ["tbdprof.prom"]


def test_only_this_format_replaces_a_file(typed: Typed, tmp_path: Path) -> None:
    code, _, err = typed("export", str(FIXTURES / "format-1.tbd"), "-o", str(tmp_path / "a.sqlite"), "--force")

    assert code == 2
    assert "--force is for openmetrics" in err
