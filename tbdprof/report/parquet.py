"""Tables as Parquet files, for DuckDB, Polars and pandas: whole columns at once, with the types of the recording.

Texts and codes are dictionaries, and what is not known of a text is null. Addresses are unsigned numbers.
"""

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tbdprof.errors import UnavailableError
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Strings
from tbdprof.facts.rows import KINDS
from tbdprof.facts.values import VALUES, TextOf

TextTable = tuple[str, Sequence[str], Iterable[Sequence[Any]]]  # name, columns, rows


def refuse_without_pyarrow() -> None:
    """Raise UnavailableError if pyarrow is not installed, or does not work with the numpy that is."""
    if find_spec("pyarrow") is None:
        raise UnavailableError("Parquet needs pyarrow, which is not installed: pip install 'tbdprof[parquet]'")
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise UnavailableError(f"Parquet needs pyarrow, which cannot be imported: {error}") from error


def to_parquet(recording: Recording, about: Iterable[TextTable], folder: Path) -> None:
    """Write the tables about the run and those of each kind into a new folder, one Parquet file each."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    for name, columns, rows in about:
        cells = [*zip(*rows, strict=True)] or [()] * len(columns)
        made = {
            column: pa.array(each, None if each else pa.string()) for column, each in zip(columns, cells, strict=True)
        }
        parquet.write_table(pa.table(made), folder / f"{name}.parquet")
    for kind, dtype in KINDS.items():
        tables = [window.table(kind) for window in recording.windows]
        rows = np.concatenate(tables) if tables else np.zeros(0, dtype)
        ordinals = np.repeat([window.ordinal for window in recording.windows], [len(table) for table in tables])
        made = {"window": pa.array(ordinals.astype(np.int64))}
        for name in dtype.names or ():
            made[name] = _column(np.ascontiguousarray(rows[name]), VALUES[kind].get(name), recording.strings)
        parquet.write_table(pa.table(made), folder / f"{kind}.parquet")


def _column(values: Any, meaning: Any, strings: Strings) -> Any:
    """Return a column; an index of a text or a code becomes a dictionary of those that occur."""
    import pyarrow as pa

    if not isinstance(meaning, TextOf | type):
        return pa.array(values)
    found, places = np.unique(values, return_inverse=True)
    if isinstance(meaning, TextOf):
        texts = [strings[int(each)].encode("utf-8", "backslashreplace").decode() for each in found]
        missing = values < 0
    else:
        texts, missing = [meaning(int(each)).name.lower() for each in found], None
    indices = pa.array(places.reshape(-1).astype(np.int32), mask=missing)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))
