"""Tables from plain tuples, for stories that tests tell; fields left out at the end have their defaults."""

from collections.abc import Sequence
from typing import Any

from tbdprof.facts import rows
from tbdprof.facts.rows import Table


def table(kind: str, tuples: Sequence[tuple[Any, ...]]) -> Table:
    """Return tuples, each in the order of the kind's fields, as that kind's array."""
    return rows.table(kind, [rows.ROWS[kind](*each) for each in tuples])
