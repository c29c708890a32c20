"""A run's figures as a flat dictionary for loggers: the numbers of the JSON report, by its paths."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report.test_reporters import FULL, profiled

import tbdprof
from tbdprof.analysis.comparison.files import compare
from tbdprof.analysis.comparison.gate import judge
from tbdprof.analysis.comparison.limits import parse
from tbdprof.analysis.summary import summarize
from tbdprof.report import json_report
from tbdprof.report.metrics.flat import figures, flat
from tbdprof.results.summary import Summary

FIXTURES = Path(__file__).parent.parent / "fixtures"


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
