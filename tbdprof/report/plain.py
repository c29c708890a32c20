"""The same values with texts that are safe to print: those of a recording may come from a stranger."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from tbdprof.errors import visible

Value = TypeVar("Value")


def plain(value: Value) -> Value:
    """Return results in which each character that cannot be printed is its escape, in texts at any depth.

    These are control characters, escapes, line feeds, characters that change the direction of text or have no width,
    and halves of surrogate pairs. All else is as it was, brackets that look like markup included.
    """
    return with_texts(value, lambda text: text if text.isprintable() else visible(text))


def with_texts(value: Value, change: Callable[[str], str]) -> Value:
    """Return results with each text changed by a function, at any depth; where none changes, the same results."""
    done: Any = _with_texts(value, change)
    return done  # type: ignore[no-any-return]


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str) and not isinstance(value, Enum):
        return change(value)
    if isinstance(value, Mapping):
        made = {_with_texts(key, change): _with_texts(each, change) for key, each in value.items()}
        same = all(new is old for new, old in zip((*made, *made.values()), (*value, *value.values()), strict=False))
        return value if same else made
    if isinstance(value, tuple | list):
        parts = [_with_texts(each, change) for each in value]
        return value if all(new is old for new, old in zip(parts, value, strict=True)) else type(value)(parts)
    if is_dataclass(value) and not isinstance(value, type):
        named = {each.name: getattr(value, each.name) for each in fields(value)}
        changed = {name: new for name, old in named.items() if (new := _with_texts(old, change)) is not old}
        return replace(value, **changed) if changed else value
    return value
