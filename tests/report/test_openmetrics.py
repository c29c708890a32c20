"""A run's figures for Prometheus: valid by its parsers, the numbers of the JSON report, nothing where it has none."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

parser = pytest.importorskip("prometheus_client.openmetrics.parser")
older = pytest.importorskip("prometheus_client.parser")
from make import run  # noqa: E402
from report.test_metrics import FIXTURES, numbers  # noqa: E402
from report.test_reporters import EMPTY, profiled  # noqa: E402

import tbdprof  # noqa: E402
from tbdprof.analysis.summary import summarize  # noqa: E402
from tbdprof.facts.recording import Recording  # noqa: E402
from tbdprof.report import json_report  # noqa: E402
from tbdprof.report.metrics import openmetrics  # noqa: E402
from tbdprof.results.memory import CATEGORIES  # noqa: E402
from tbdprof.results.summary import Summary  # noqa: E402

EVIL = 'a"b\\c\n[red]\x1b[31m\u202e{x="1"} 5 # EOF \ud800'
Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", params=["format-1", "format-5-torch", "format-5-mxnet", "format-5-tensorflow"])
def summary(request: pytest.FixtureRequest) -> Summary:
    return tbdprof.load(FIXTURES / f"{request.param}.tbd").summary


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
