"""Values as JSON that any reader takes."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any


def json_text(document: object, *, indent: int | None = 2, default: Callable[[Any], Any] | None = None) -> str:
    """Return a document as JSON in ASCII; a number that is not finite is null, for JSON has no name for it.

    Control characters and halves of surrogate pairs are escaped, as JSON does.
    """
    return json.dumps(_finite(document), indent=indent, allow_nan=False, default=default)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
