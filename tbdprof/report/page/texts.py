"""Texts of a recording on a page: they stay text, and long ones are cut, with their length said."""

from html import escape
from typing import Any, TypeVar

from tbdprof.report.json_text import json_text
from tbdprof.report.plain import plain, with_texts

Value = TypeVar("Value")

MOST = 300  # characters of a name; a template's name can be longer than a screen
MOST_IN_CHART = 64


def shortened(text: str, most: int = MOST) -> str:
    """Return a text, or the beginning and end of a long one with the number of its characters."""
    if len(text) <= most:
        return text
    tail = most // 4
    note = f" … ({len(text):,} characters) … " if most > 100 else "…"
    return f"{text[: most - tail]}{note}{text[-tail:]}"


def readable(value: Value) -> Value:
    """Return results in which each text can be shown: what cannot be printed is escaped, and what is long is cut."""
    return with_texts(plain(value), shortened)


def in_chart(text: str, most: int = MOST_IN_CHART) -> str:
    """Return a text for a chart: Plotly reads some tags and entities in labels as markup, so these are escaped."""
    return escape(shortened(text, most), quote=False)


def embedded(value: Any) -> str:
    """Return a value as JSON that may stand in a script element: nothing in it ends the element or begins another."""
    text = json_text(value, indent=None)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
