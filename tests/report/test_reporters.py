"""Every reporter on a full, a partial and an empty run."""

import csv
import json
import sqlite3
from pathlib import Path

import pytest
from fakes import FakeHook
from make import run

from tbdprof.analysis.roles import CATEGORIES
from tbdprof.analysis.summary import Summary, summarize
from tbdprof.errors import UsageError
from tbdprof.plan import Plan
from tbdprof.profiler import Profiler
from tbdprof.recording import Recording
from tbdprof.records import Role
from tbdprof.report import export, json_report, terminal

PLAN = Plan(warmup=2, steps=4, memory_steps=3)


def profiled(steps: int, **run_changes: object) -> Recording:
    hook = FakeHook()
    prof = Profiler(hook, run(**run_changes), PLAN, clock=hook.clock)
    with prof:
        for _ in range(steps):
            hook.clock.sleep(0.1)
            prof.step(8)
    return prof.recording


FULL, PARTIAL, EMPTY = 13, 5, 0


@pytest.fixture(params=[FULL, PARTIAL, EMPTY], ids=["full", "partial", "empty"])
def summary(request: pytest.FixtureRequest) -> Summary:
    return summarize(profiled(request.param))


def nulls(value: object, path: str = "") -> list[str]:
    if value is None:
        return [path]
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in nulls(item, f"{path}.{key}" if path else key)]
    return []


def explained(path: str, missing: dict[str, str]) -> bool:
    """Tell whether a null, or something it is part of, has its reason."""
    parts = path.split(".")
    return any(".".join(parts[:length]) in missing for length in range(1, len(parts) + 1))


def test_the_json_has_every_key_of_the_contract(summary: Summary):
    document = json.loads(json_report.render(summary))

    assert document["schema"] == 1
    assert set(document) == {
        "schema", "run", "throughput", "utilization", "time", "time_by_layer", "memory", "kernels",
        "low_utilization", "overhead", "missing",
    }  # fmt: skip
    assert {
        "model", "framework", "framework_version", "device", "device_name", "threads", "batch_size", "precision",
        "seed", "parameters", "flops_per_sample", "settled", "settled_by", "drifted", "steps", "complete",
        "lost_windows",
    } <= set(document["run"])  # fmt: skip
    assert set(document["run"]["steps"]) == {"warmup", "clean", "memory", "kernels"}
    assert {"device_busy", "fp32_flop", "fp32_pipe", "tensor_pipe", "cpu", "mfu"} == set(document["utilization"])


def test_every_measured_null_in_the_json_has_its_reason(summary: Summary):
    document = json.loads(json_report.render(summary))
    measured = {key: document[key] for key in ("throughput", "utilization", "time", "memory", "overhead", "kernels")}

    unexplained = [path for path in nulls(measured) if not explained(path, document["missing"])]

    assert unexplained == []


def test_the_json_of_a_full_run_has_the_numbers():
    document = json.loads(json_report.render(summarize(profiled(FULL))))

    memory = document["memory"]
    assert memory["allocator_peak_bytes"] == memory["independent_peak_bytes"] == 240
    assert sum(memory["at_peak"].values()) == 240
    assert memory["at_peak"]["weights"] == 100
    assert memory["at_optimizer_step"]["gradient"] == 100
    assert memory["top_at_peak"][0] == {
        "name": "w", "role": "weight", "layer": "", "operator": None, "shape": [1], "bytes": 100,
    }  # fmt: skip
    assert sum(row["bytes"] for row in memory["by_layer"]) == 240
    assert document["throughput"]["samples_per_s"] == pytest.approx(80)
    assert document["throughput"]["unit"] == {"name": "samples", "per_s": pytest.approx(80)}
    assert document["run"]["parameters"] == 25
    assert document["run"]["steps"] == {"warmup": 2, "clean": 8, "memory": 3, "kernels": 0}


def test_the_roles_add_up_to_their_categories():
    memory = summarize(profiled(FULL)).memory
    assert memory is not None

    assert {role.name.lower() for role in Role} == set(
        json_report.document(summarize(profiled(FULL)))["memory"]["roles_max"]
    )
    total = sum(memory.category_at_peak(category) for category in CATEGORIES)
    assert total == sum(memory.roles_at_peak.values()) == memory.allocator_peak_bytes


@pytest.mark.parametrize("width", [60, 100, 200])
def test_the_terminal_report_fits_its_terminal(summary: Summary, width: int):
    text = terminal.render(summary, width=width)

    assert max(map(len, text.splitlines())) <= width


def test_the_terminal_report_says_what_there_is():
    text = terminal.render(summarize(profiled(FULL, model="resnet50")), width=110)

    assert "resnet50" in text
    assert "80 [80, 80] samples/s in the clean windows" in text
    assert "240 bytes, equal to the framework's own total" in text
    assert "100 B" in text
    assert "incomplete" not in text


def test_the_terminal_report_of_an_empty_run_says_why():
    text = terminal.render(summarize(profiled(EMPTY)), width=110)

    assert "not measured: no step was recorded" in text
    assert "incomplete: the loop ended first" in text


def test_names_that_look_like_markup_are_printed_as_they_are():
    assert "[bold]net[/bold]" in terminal.render(summarize(profiled(FULL, model="[bold]net[/bold]")), width=100)


def test_an_export_to_sqlite_can_be_queried(tmp_path: Path):
    export.write(profiled(FULL), tmp_path / "plain.sqlite", "sqlite")

    with sqlite3.connect(tmp_path / "plain.sqlite") as connection:
        weights = connection.execute("SELECT DISTINCT name, bytes FROM owner WHERE role = 'weight'").fetchall()
        steps = connection.execute(
            "SELECT count(*) FROM step JOIN window USING (window) WHERE window.name = 'clean'"
        ).fetchone()
        freed = connection.execute("SELECT count(*) FROM allocation WHERE kind = 'freed' AND device = 'cpu'").fetchone()

    assert weights == [("w", 100)]
    assert steps == (8,)
    assert freed == (6,)


def test_an_export_to_csv_has_a_file_a_kind(tmp_path: Path):
    export.write(profiled(FULL), tmp_path / "plain", "csv")

    with (tmp_path / "plain" / "step.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 + 4 + 3 + 4
    assert {file.stem for file in (tmp_path / "plain").iterdir()} >= {"run", "window", "span", "allocation", "owner"}


def test_an_export_overwrites_nothing(tmp_path: Path):
    (tmp_path / "there").write_text("precious")

    with pytest.raises(UsageError, match="exists"):
        export.write(profiled(FULL), tmp_path / "there", "sqlite")
