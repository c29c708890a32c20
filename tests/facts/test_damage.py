"""A damaged recording is refused in one line that names the place; what is whole of it can be salvaged."""

import json
import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make import MemoryStory, run, timed_window
from mutants import sum_up

from tbdprof.analysis.summary import summarize
from tbdprof.errors import RecordingFormatError
from tbdprof.facts.file.placing import save
from tbdprof.facts.file.reading import load
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.recording import DAMAGED, Recording
from tbdprof.facts.records import Phase, Role, SpanKind

FIXTURES = Path(__file__).parents[1] / "fixtures"
Change = Callable[[sqlite3.Connection], object]


def recording() -> Recording:
    """Return a memory window and a clean one."""
    story = MemoryStory()
    with story.span(SpanKind.LAYER, "fc", Phase.FORWARD), story.span(SpanKind.OPERATOR, "aten::mm", Phase.FORWARD):
        block = story.allocate(12)
        story.own(block, Role.WEIGHT, "fc.weight")
        story.free(block)
    story.mark()
    whole = story.recording(batch_size=4)
    whole.missing["nvml"] = "no driver"
    whole.windows.append(timed_window(1, "clean", [0.5, 0.25]))
    return whole


def changed(path: Path, change: Change, *, forged: bool = True) -> Path:
    """Save a recording and change its tables; with `forged` its checksums fit again."""
    save(recording(), path)
    with closing(sqlite3.connect(path)) as connection, connection:
        change(connection)
        if forged:
            sum_up(connection)
    return path


def sql(statement: str) -> Change:
    return lambda connection: connection.execute(statement)


def values(kind: str, name: str, first: Any) -> Change:
    """Put another value into the first row of a column."""

    def change(connection: sqlite3.Connection) -> None:
        query = "SELECT rowid, dtype, data FROM column_block WHERE kind = ? AND name = ? ORDER BY window DESC"
        rowid, dtype, data = connection.execute(query, (kind, name)).fetchone()
        column = np.frombuffer(zlib.decompress(data), dtype).copy()
        column[0] = first
        data = zlib.compress(column.tobytes())
        connection.execute("UPDATE column_block SET data = ? WHERE rowid = ?", (data, rowid))

    return change


ENDLESS = json.dumps([{"name": "w", "shape": [2**62] * 5000, "item_bytes": 4, "trainable": True}])
IMPOSSIBLE = {
    "an index beyond the texts": (values("span", "name", 999), "span.name"),
    "a code of no enumeration": (values("allocation", "kind", 77), "allocation.kind"),
    "negative bytes": (values("allocation", "allocated_bytes", -7), "allocation.allocated_bytes"),
    "a time before its start": (values("span", "end_ns", -(2**40)), "span.end_ns"),
    "steps that go back": (values("step", "end_ns", 2**60), "step.start_ns"),
    "no number": (values("step", "units", float("nan")), "step.units"),
    "a span within itself": (values("span", "parent", 0), "span.parent"),
    "an allocation in no span": (values("allocation", "span", 55), "allocation.span"),
    "a shape that is none": (sql("UPDATE text SET text = '[1, -1]' WHERE text LIKE '[%'"), "shape"),
    "a column that is missing": (sql("DELETE FROM column_block WHERE name = 'address'"), "allocation.address"),
    "a column of another kind": (sql("UPDATE column_block SET dtype = '<i8' WHERE name = 'units'"), "step.units"),
    "an unknown kind": (sql("UPDATE column_block SET kind = 'colour' WHERE kind = 'span'"), "colour"),
    "a missing part": (sql("UPDATE column_block SET part = 1 WHERE kind = 'span'"), "span: part 0"),
    "more rows than stated": (sql("UPDATE column_block SET rows = 1 WHERE kind = 'step'"), "step."),
    "rows without number": (sql("UPDATE column_block SET rows = 2000000000 WHERE kind = 'step'"), "GiB"),
    "a missing window": (sql("DELETE FROM window WHERE ordinal = 0"), "window"),
    "an unknown state": (sql("UPDATE window SET state = 'fine'"), "window.state"),
    "a missing text": (sql("DELETE FROM text WHERE id = 1"), "text.id"),
    "a missing fact": (sql("DELETE FROM run WHERE key = 'model'"), "model"),
    "a fact of another type": (sql("UPDATE run SET value = '[]' WHERE key = 'batch_size'"), "run.batch_size"),
    "a negative fact": (sql("UPDATE run SET value = '-1' WHERE key = 'batch_size'"), "run.batch_size"),
    "deep JSON": (sql(f"UPDATE run SET value = '{'[' * 9000}' WHERE key = 'options'"), "run.options"),
    "a view": (sql("CREATE VIEW more AS SELECT 1"), "its tables"),
    "a trigger": (sql("CREATE TRIGGER more AFTER INSERT ON run BEGIN DELETE FROM run; END"), "its tables"),
    "a generated column": (sql("ALTER TABLE text ADD COLUMN more AS (id + 1)"), "its tables"),
    "a shape whose product takes hours": (
        lambda connection: connection.execute("UPDATE run SET value = ? WHERE key = 'parameters'", (ENDLESS,)),
        "run.parameters: a shape",
    ),
    "an earlier version": (sql("PRAGMA user_version = 4"), "format 4"),
    "a version that never was": (sql("PRAGMA user_version = 0"), "format 0"),
}


@pytest.mark.parametrize(("change", "named"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_is_refused_by_its_place(tmp_path: Path, change: Change, named: str):
    path = changed(tmp_path / "a.tbd", change)

    with pytest.raises(RecordingFormatError, match="is damaged") as caught:
        load(path)

    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("table", ["run", "missing", "window", "text", "column_block", "checksum"])
def test_a_row_that_is_gone_is_noticed_in_each_table(tmp_path: Path, table: str):
    noticed = "text" if table == "checksum" else table  # whose checksum the last one is
    path = changed(
        tmp_path / "a.tbd", sql(f"DELETE FROM {table} WHERE rowid = (SELECT MAX(rowid) FROM {table})"), forged=False
    )

    with pytest.raises(RecordingFormatError, match=noticed):
        load(path)


def test_damage_in_one_window_leaves_the_others(tmp_path: Path):
    path = changed(tmp_path / "a.tbd", values("span", "end_ns", 5), forged=False)

    with pytest.raises(RecordingFormatError, match=r"memory \(window 0\).*--salvage leaves this window out"):
        load(path)
    salvaged = load(path, salvage=True)

    assert [window.state for window in salvaged.windows] == [DAMAGED, "complete"]
    assert "memory (window 0)" in salvaged.missing[RemarkOn.DAMAGE]
    summary = summarize(salvaged)
    assert summary.memory is None
    assert summary.missing_now["memory"] == "the memory window is left out, because the file is damaged"
    assert summary.throughput is not None


@pytest.mark.parametrize(
    "words",
    [
        *(["kernels"], ["layers"], ["memory"], ["report"]),
        *(["export", "-o", "out", "--format", form] for form in ("sqlite", "csv", "perfetto", "openmetrics")),
    ],
)
def test_each_command_that_shows_a_recording_salvages_it_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Callable[..., tuple[int, str, str]], words: list[str]
):
    monkeypatch.chdir(tmp_path)
    changed(tmp_path / "a.tbd", values("span", "end_ns", 5), forged=False)

    code, out, said = typed(words[0], "a.tbd", *words[1:])
    assert (code, out, said.count("\n")) == (1, "", 1)
    assert "with --salvage leaves this window out" in said
    assert not Path("out").exists()

    code, out, said = typed(words[0], "a.tbd", "--salvage", *words[1:])
    assert (code, said.count("\n")) == (0, 1)
    assert "memory (window 0)" in said
    assert out or Path("out").exists()


@pytest.mark.parametrize("words", [["kernels"], ["export", "-o", "out"]])
def test_a_file_without_its_end_is_one_line_though_it_is_to_be_salvaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Callable[..., tuple[int, str, str]], words: list[str]
):
    monkeypatch.chdir(tmp_path)
    save(recording(), Path("a.tbd"))
    os.truncate("a.tbd", Path("a.tbd").stat().st_size // 2)

    code, out, said = typed(words[0], "a.tbd", "--salvage", *words[1:])

    assert (code, out, said.count("\n")) == (1, "", 1)
    assert not Path("out").exists()


@pytest.mark.parametrize("change", ["kind = 'colour'", "rows = -1", "rows = 1 << 40", "window = 99"])
def test_an_impossible_block_costs_its_window_alone(tmp_path: Path, change: str):
    first = "(SELECT MIN(rowid) FROM column_block WHERE window = 1)"
    path = changed(tmp_path / "a.tbd", sql(f"UPDATE column_block SET {change} WHERE rowid = {first}"), forged=False)

    with pytest.raises(RecordingFormatError, match="--salvage leaves"):
        load(path)
    salvaged = load(path, salvage=True)

    assert [window.state for window in salvaged.windows] == ["complete", DAMAGED]


def test_no_window_without_its_blocks_is_salvaged_where_there_are_no_checksums(tmp_path: Path):
    path = shutil.copy(FIXTURES / "format-4.tbd", tmp_path / "a.tbd")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE column_block SET window = 99 WHERE window = 1")

    with pytest.raises(RecordingFormatError, match=r"column_block\.window"):
        load(path, salvage=True)


def test_nothing_is_salvaged_without_the_facts_of_the_run(tmp_path: Path):
    path = changed(tmp_path / "a.tbd", sql("UPDATE run SET value = '\"b\"' WHERE key = 'model'"), forged=False)

    with pytest.raises(RecordingFormatError, match="run: rows are missing, doubled or changed"):
        load(path, salvage=True)


def test_texts_that_no_utf_8_has_survive(tmp_path: Path):
    whole = Recording(run(model="\udcff\x00\ud800"), [timed_window(0, "clean", [0.5])])
    whole.missing["memory"] = "\ud800\x00"
    whole.strings.add("\udc80")
    save(whole, tmp_path / "a.tbd")

    again = load(tmp_path / "a.tbd")

    assert again.run.model == "\udcff\x00\ud800"
    assert again.missing["memory"] == "\ud800\x00"
    assert again.strings.since(0) == whole.strings.since(0)


def test_what_lies_beside_a_recording_is_not_touched(tmp_path: Path):
    path = tmp_path / "a.tbd"
    save(recording(), path)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).write_bytes(b"7" * 4096)
    before = {each: (each.read_bytes(), each.stat().st_mtime_ns) for each in tmp_path.iterdir()}

    assert load(path).run.model == "toy"

    assert {each: (each.read_bytes(), each.stat().st_mtime_ns) for each in tmp_path.iterdir()} == before
