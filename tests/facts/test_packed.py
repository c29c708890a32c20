"""A large table that stays packed is read as the array that it stands for, and every analysis finds the same."""

import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest

from tbdprof.analysis import spans
from tbdprof.analysis.summary import summarize
from tbdprof.errors import RecordingFormatError
from tbdprof.facts.file import packed
from tbdprof.facts.file.packed import Packed
from tbdprof.facts.file.placing import save
from tbdprof.facts.file.reading import load
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Run, Strings
from tbdprof.facts.rows import KINDS, Table
from tbdprof.report.json_report import render

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("*.tbd"))
ROWS = packed.LEAST_ROWS


def operators(count: int) -> Table:
    rows = np.zeros(count, KINDS["span"])
    rows["id"], rows["parent"] = np.arange(count), -1
    rows["start_ns"] = rows["end_ns"] = np.arange(count) * 1000
    rows["phase"], rows["name"] = np.arange(count) % 3, -1
    rows["work"] = rows["shapes"] = -1
    return rows


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    """A recording with a table that stays packed, and one of the same kind that is just too small."""
    path: Path = tmp_path_factory.mktemp("packed") / "large.tbd"
    windows = [Window(0, "kernels", "complete", {"span": operators(ROWS)})]
    windows += [Window(1, "memory", "complete", {"span": operators(ROWS - 1)})]
    save(Recording(Run("large", "torch", device="cpu"), windows, Strings()), path)
    return path


def test_only_a_large_table_stays_packed(file):
    large, small = (window.tables["span"] for window in load(file).windows)

    assert isinstance(large, Packed)
    assert isinstance(small, np.ndarray)


@pytest.mark.parametrize("key", [3, -1, slice(5, 9), np.array([7, 7, 2]), np.arange(ROWS) % 1000 == 0, slice(0, 0)])
def test_rows_are_those_of_the_array(file, key):
    rows, expected = load(file).windows[0].table("span"), operators(ROWS)

    assert len(rows) == len(expected)
    assert rows[key].tolist() == expected[key].tolist()
    assert rows[key].dtype == expected.dtype


def test_the_whole_is_the_array(file):
    rows, expected = load(file).windows[0].table("span"), operators(ROWS)

    assert (np.concatenate([rows, rows[:2]]) == np.concatenate([expected, expected[:2]])).all()
    assert rows.tolist() == rows.copy().tolist() == expected.tolist()


def test_a_column_is_unpacked_while_it_is_used_and_cannot_be_changed(file):
    rows = load(file).windows[0].table("span")
    column = rows["start_ns"]

    assert (column == operators(ROWS)["start_ns"]).all()
    assert rows["start_ns"] is column
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1
    unpacked = weakref.ref(column)
    del column
    assert unpacked() is None


def test_a_packed_table_is_saved_as_it_was(file, tmp_path):
    save(load(file), tmp_path / "again.tbd")

    assert load(tmp_path / "again.tbd").windows[0].table("span").tolist() == operators(ROWS).tolist()


def test_damage_to_a_packed_table_is_found_when_it_is_read(file, tmp_path):
    damaged = tmp_path / "damaged.tbd"
    shutil.copy(file, damaged)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 3] ^= 1
    damaged.write_bytes(data)

    with pytest.raises(RecordingFormatError, match="is damaged"):
        load(damaged)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_every_report_is_the_same_from_packed_tables_and_in_small_pieces(path, monkeypatch):
    whole = render(summarize(load(path)))
    monkeypatch.setattr(packed, "LEAST_ROWS", 1)
    monkeypatch.setattr(spans, "PIECE", 7)

    recording = load(path)
    assert all(isinstance(rows, Packed) for window in recording.windows for rows in window.tables.values() if len(rows))
    assert render(summarize(recording)) == whole
