"""Tables as Parquet: the same as those of the SQLite export, with types, and one line where pyarrow is missing."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

import tbdprof
from tbdprof.errors import UnavailableError
from tbdprof.report.export import write

FIXTURE = Path(__file__).parents[1] / "fixtures" / "format-5-torch.tbd"


def test_parquet_has_the_rows_of_the_sqlite_export(tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    recording = tbdprof.load(FIXTURE)
    write(recording, tmp_path / "plain.sqlite", "sqlite")
    write(recording, tmp_path / "parquet", "parquet")

    with closing(sqlite3.connect(tmp_path / "plain.sqlite")) as plain:
        names = [name for (name,) in plain.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert sorted(names) == sorted(path.stem for path in (tmp_path / "parquet").iterdir())
        for name in names:
            found = parquet.read_table(tmp_path / "parquet" / f"{name}.parquet")
            rows = [tuple(map(in_sqlite, zip(row, row.values(), strict=True))) for row in found.to_pylist()]
            assert rows == plain.execute(f'SELECT * FROM "{name}"').fetchall(), name


def in_sqlite(cell: tuple[str, object]) -> object:
    """Return a cell as the SQLite export has it: an address is text in hexadecimal there."""
    name, value = cell
    return hex(value) if name in ("address", "operand") and isinstance(value, int) else value


def test_without_pyarrow_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(UnavailableError, match=r"Parquet needs pyarrow, .*: pip install 'tbdprof\[parquet\]'"):
        write(tbdprof.load(FIXTURE), tmp_path / "parquet", "parquet")
    assert not list(tmp_path.iterdir())
