"""The same values with texts that are safe to print: those of a recording may come from a stranger."""

from collections.abc import Mapping
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
    done: Any = _plain(value)
    return done  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Enum):
        return value if value.isprintable() else visible(value)
    if isinstance(value, Mapping):
        made = {_plain(key): _plain(each) for key, each in value.items()}
        same = all(new is old for new, old in zip((*made, *made.values()), (*value, *value.values()), strict=False))
        return value if same else made
    if isinstance(value, tuple | list):
        parts = [_plain(each) for each in value]
        return value if all(new is old for new, old in zip(parts, value, strict=True)) else type(value)(parts)
    if is_dataclass(value) and not isinstance(value, type):
        named = {each.name: getattr(value, each.name) for each in fields(value)}
        changed = {name: new for name, old in named.items() if (new := _plain(old)) is not old}
        return replace(value, **changed) if changed else value
    return value
