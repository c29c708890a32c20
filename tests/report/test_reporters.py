"""Every reporter on a full, a partial and an empty run."""

import csv
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeHook
from make import MemoryStory, run
from plain_rows import table

from tbdprof.analysis.summary import summarize
from tbdprof.collect.host_load import HostLoad
from tbdprof.errors import UsageError
from tbdprof.facts.counters import MACHINE_CPU, PROCESS_CPU
from tbdprof.facts.recording import KILLED, Recording
from tbdprof.facts.records import KernelKind, Operation, Optimizer, Phase, Role
from tbdprof.facts.windows import CLEAN
from tbdprof.facts.work import Work
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.plan import Plan
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.report import export, json_report, terminal
from tbdprof.results.memory import CATEGORIES
from tbdprof.results.summary import Summary
from tbdprof.results.time import CpuUtilization, Overhead

PLAN = Plan(warmup=2, steps=4, memory_steps=3)


def profiled(steps: int, *, plan: Plan = PLAN, units: float | None = 8, **run_changes: object) -> Recording:
    hook = FakeHook()
    load = HostLoad({PROCESS_CPU: lambda: 0.0, MACHINE_CPU: lambda: 0.0})  # whatever runs beside the tests
    prof = LoopProfiler(hook, run(**run_changes), plan, clock=hook.clock, instruments=Instruments({CLEAN: [load]}))
    with prof:
        for _ in range(steps):
            hook.clock.sleep(0.1)
            prof.step(units)
    return prof.recording


def without_update(**run_changes: object) -> Recording:
    """Return a recording of a memory window alone, without an optimizer's step, a total or requested sizes."""
    story = MemoryStory(counts=False)
    for _ in range(3):
        story.allocate(40)
        story.mark()
    story.allocations = [(*row[:5], -1, *row[6:]) for row in story.allocations]
    return story.recording(**run_changes)


FULL, PARTIAL, EMPTY = 21, 5, 0  # steps: 2 of warm-up, then 4 of each window but 3 of memory


@pytest.fixture(params=[FULL, PARTIAL, EMPTY], ids=["full", "partial", "empty"])
def summary(request: pytest.FixtureRequest) -> Summary:
    return summarize(profiled(request.param))


ROWS = {
    "memory.top_at_peak", "memory.by_layer", "kernels", "low_utilization.rows", "low_utilization.uncounted",
    "time_by_layer", "missing",
}  # fmt: skip


def nulls(value: object, path: str = "") -> list[str]:
    """Return the paths of all nulls but those in rows of a list, where null means that there is none."""
    if value is None:
        return [path]
    if path in ROWS:
        return []
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in nulls(item, f"{path}.{key}" if path else key)]
    return []


def explained(path: str, missing: dict[str, str]) -> bool:
    """Return whether a null, or something it is part of, has its reason; some stand by their own name alone."""
    parts = path.split(".")
    return parts[-1] in missing or any(".".join(parts[:length]) in missing for length in range(1, len(parts) + 1))


def test_the_json_has_every_key_of_the_contract(summary: Summary):
    document = json.loads(json_report.render(summary))

    assert document["schema"] == 1
    assert set(document) == {
        "schema", "run", "throughput", "verdict", "utilization", "time", "time_by_layer", "memory", "kernels",
        "low_utilization", "overhead", "missing", "counted", "levels", "sampled", "device", "energy",
        "device_memory", "post_mortem", "records",
    }  # fmt: skip
    assert {
        "model", "framework", "framework_version", "device", "device_name", "threads", "batch_size", "precision",
        "seed", "parameters", "flops_per_sample", "settled", "settled_by", "drifted", "steps", "complete",
        "lost_windows",
    } <= set(document["run"])  # fmt: skip
    assert set(document["run"]["steps"]) == {"warmup", "clean", "memory", "kernels", "sampled"}
    assert {"device_busy", "fp32_flop", "fp32_pipe", "tensor_pipe", "cpu", "mfu"} == set(document["utilization"])


RUNS = {
    "full": lambda: profiled(FULL),
    "partial": lambda: profiled(PARTIAL),
    "empty": lambda: profiled(EMPTY),
    "one clean block": lambda: profiled(3, plan=Plan(warmup=2, steps=1, windows=("clean",))),
    "one block a window": lambda: profiled(FULL, plan=Plan(warmup=2, steps=1, memory_steps=2)),
    "no update": without_update,
    "a total that came late": lambda: without_update(independent_total="counting began late"),
    "steps counted": lambda: profiled(FULL, units=None),
    "all reported": lambda: profiled(FULL, batch_size=8, precision="fp32", seed=0),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_null_in_the_json_has_its_reason(name: str):
    document = json.loads(json_report.render(summarize(RUNS[name]())))

    assert [path for path in nulls(document) if not explained(path, document["missing"])] == []
    assert all(document["missing"].values())


def test_what_has_a_value_has_no_reason_to_be_missing():
    document = json.loads(json_report.render(summarize(profiled(FULL, batch_size=8, precision="fp32", seed=0))))

    absent = {path.partition(".")[0] for path in nulls(document)}
    assert {name.partition(".")[0] for name in document["missing"]} - {"flops_per_sample", "memory"} <= absent
    assert not {"memory", "throughput", "run.seed", "run.drifted", "rounding"} & set(document["missing"])


def test_what_lies_beneath_the_allocator_is_said_to_be_unmeasured():
    missing = json_report.document(summarize(profiled(FULL)))["missing"]

    for name in ("memory.allocator_cache", "memory.driver_context", "memory.other_processes"):
        assert missing[name] == "reported on a GPU only"


def test_where_only_steps_were_counted_the_report_says_so():
    missing = json_report.document(summarize(profiled(FULL, units=None)))["missing"]

    assert missing["throughput.samples_per_s"] == "no samples were counted, and no batch size is known"


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
    assert document["run"]["steps"] == {"warmup": 2, "clean": 12, "memory": 3, "kernels": 4, "sampled": 0}


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
    assert "peak over the whole run: 240 B" in text
    assert "gradients where the optimizer's step begins: 100 B" in text
    assert "outside the allocator" not in text
    assert "incomplete" not in text


def shown(memory_changes: dict[str, object] | None = None, **summary_changes: object) -> str:
    """Return the terminal report of a full run of which something is otherwise."""
    summary = summarize(profiled(FULL))
    assert summary.memory is not None
    memory = replace(summary.memory, **(memory_changes or {}))  # type: ignore[arg-type]
    return terminal.render(replace(summary, memory=memory, **summary_changes), width=120)  # type: ignore[arg-type]


def test_what_the_blocks_leave_of_the_frameworks_total_is_said_and_never_called_equal():
    sizes = dict.fromkeys(Role, 0) | {Role.WEIGHT: 150, Role.UNKNOWN: 90}

    text = shown({"roles_at_peak": sizes, "allocator_peak_bytes": 150})

    assert "\n90 bytes of the framework's total are not explained\n" in text
    assert "equal" not in text
    assert "equal" not in shown({"roles_at_peak": sizes})
    assert "241 bytes were reported, the framework says 240" in shown({"allocator_peak_bytes": 241})


def test_memory_outside_the_allocator_has_its_line():
    inside = {"outside_allocator_bytes": 64, "outside_allocator_max": {Role.WEIGHT: 40, Role.INPUT: 24}}
    assert "\nweight 40 B, input 24 B outside the allocator: shared with other processes, mapped, or" in shown(inside)
    assert "outside the allocator: 64 B" in shown({"outside_allocator_bytes": 64})


@pytest.mark.parametrize(
    ("interval", "drifted", "said"),
    [
        ((0.9, 1.1), False, "cost 1.000 [0.900, 1.100] times a clean step (not distinguishable from none)"),
        ((1.1, 1.2), False, "cost 1.000 [1.100, 1.200] times a clean step"),
        ((0.299, 30.5), False, "cost is not known: 1.000 [0.299, 30.500] times a clean step, too wide an interval"),
        ((0.9, 1.1), True, "cost is not known: 1.000 [0.900, 1.100] times a clean step, and the run drifted"),
        ((0.8, 0.99), False, "cost is not known: 1.000 [0.800, 0.990] times a clean step: the loop itself got faster"),
    ],
)
def test_a_cost_that_is_not_known_is_not_called_none(interval: tuple[float, float], drifted: bool, said: str):
    throughput = summarize(profiled(FULL)).throughput
    assert throughput is not None

    text = shown(throughput=replace(throughput, drifted=drifted), memory_overhead=Overhead(1.0, interval))

    assert text.splitlines()[[line[:13] for line in text.splitlines()].index("memory window")].endswith(said)


def test_other_load_names_the_cores_it_is_of_where_a_quota_holds():
    assert "may run on" not in shown(cpu=CpuUtilization(0.5, 0.25, 2.0, 2.0))
    assert "50.0 % of 2 cores; others 25.0 % of the 8 it may run on" in shown(cpu=CpuUtilization(0.5, 0.25, 2.0, 8.0))


def test_a_window_is_lost_where_the_process_was_killed_and_not_while_it_is_still_open():
    hook = FakeHook()
    prof = LoopProfiler(hook, run(), PLAN, clock=hook.clock)
    with prof:
        prof.step(8)
        going = terminal.render(summarize(prof.recording))
        killed = replace(prof.recording, run=replace(prof.recording.run, ended_by=KILLED))

    assert "incomplete: it is still running" in going
    assert "lost:" not in going
    killed.windows[0].state = "open"
    assert json_report.document(summarize(killed))["run"]["lost_windows"] == ["warmup (window 0)"]
    assert "incomplete: the process was killed\nlost: warmup (window 0)" in terminal.render(summarize(killed))


def test_the_terminal_report_of_an_empty_run_says_why():
    text = terminal.render(summarize(profiled(EMPTY)), width=110)

    assert "not measured: no step was recorded" in text
    assert "incomplete: the loop ended first" in text


def test_names_that_look_like_markup_are_printed_as_they_are():
    assert "[bold]net[/bold]" in terminal.render(summarize(profiled(FULL, model="[bold]net[/bold]")), width=100)


def test_an_export_to_sqlite_can_be_queried(tmp_path: Path):
    export.write(profiled(FULL), tmp_path / "plain.sqlite", "sqlite")

    with closing(sqlite3.connect(tmp_path / "plain.sqlite")) as connection:
        weights = connection.execute("SELECT DISTINCT name, bytes FROM owner WHERE role = 'weight'").fetchall()
        steps = connection.execute(
            "SELECT count(*) FROM step JOIN window USING (window) WHERE window.name = 'clean'"
        ).fetchone()
        freed = connection.execute(
            "SELECT count(*) FROM allocation JOIN window USING (window) WHERE kind = 'freed' AND window.name = 'memory'"
        ).fetchone()

    assert weights == [("w", 100)]
    assert steps == (12,)
    assert freed == (6,)


def test_an_export_has_the_run_as_json_and_its_parameters_and_optimizers_as_tables(tmp_path: Path):
    recording = profiled(FULL, options={"image_size": 64})
    recording.run = replace(recording.run, optimizers=(Optimizer("sgd", ("w",), {"momentum": 0.9}),))
    export.write(recording, tmp_path / "plain.sqlite", "sqlite")

    with closing(sqlite3.connect(tmp_path / "plain.sqlite")) as connection:
        rows = {key: json.loads(value) for key, value in connection.execute("SELECT key, value FROM run")}
        parameters = connection.execute("SELECT name, shape, bytes, trainable, is_buffer FROM parameter").fetchall()
        optimizers = connection.execute("SELECT kind, settings, parameters FROM optimizer").fetchall()

    assert (rows["model"], rows["complete"], rows["seed"], rows["options"]) == ("toy", True, None, {"image_size": 64})
    assert parameters == [("w", "[25]", 100, 1, 0)]
    assert optimizers == [("sgd", '{"momentum": 0.9}', '["w"]')]


def test_an_export_has_what_a_span_computes_and_the_kernels_of_a_gpu(tmp_path: Path):
    story = MemoryStory()
    work = Work(Operation.MATMUL, {"batch": 1, "rows": 2, "columns": 3, "inner": 4})
    with story.operator("aten::mm", Phase.FORWARD, operation=Operation.MATMUL, work=work):
        pass
    recording = story.recording()
    name, device, grid = map(story.strings.add, ("gemm", "cuda:0", "[8, 1, 1]"))
    row = (name, KernelKind.KERNEL, device, 7, 10, 20, 30, 0, grid, grid, -1, -1, -1)
    recording.windows[0].tables["kernel"] = table("kernel", [row])
    export.write(recording, tmp_path / "plain.sqlite", "sqlite")

    with closing(sqlite3.connect(tmp_path / "plain.sqlite")) as connection:
        inner = connection.execute("SELECT name, json_extract(work, '$.sizes.inner') FROM span").fetchall()
        kernels = connection.execute("SELECT name, kind, device, grid, block, registers FROM kernel").fetchall()

    assert inner == [("aten::mm", 4)]
    assert kernels == [("gemm", "kernel", "cuda:0", "[8, 1, 1]", "[8, 1, 1]", -1)]


def test_an_export_to_csv_has_a_file_a_kind(tmp_path: Path):
    export.write(profiled(FULL), tmp_path / "plain", "csv")

    with (tmp_path / "plain" / "step.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 + 4 + 3 + 4 + 4 + 4
    assert {file.stem for file in (tmp_path / "plain").iterdir()} >= {"run", "window", "span", "allocation", "owner"}


def test_an_export_overwrites_nothing(tmp_path: Path):
    (tmp_path / "there").write_text("precious")

    with pytest.raises(UsageError, match="exists"):
        export.write(profiled(FULL), tmp_path / "there", "sqlite")
