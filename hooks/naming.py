"""Prefixes of parameter names when a run has several models, the same in every framework."""

from collections.abc import Sequence
from typing import TypeVar

Model = TypeVar("Model")


def prefixes(models: Sequence[Model]) -> list[tuple[str, Model]]:
    """Return each model with its prefix: none for a single model, else its class, numbered if it occurs twice."""
    if len(models) == 1:
        return [("", models[0])]
    classes = [type(model).__name__.lower() for model in models]
    numbers = [classes[:i].count(name) for i, name in enumerate(classes)]
    return [
        (f"{name}{number}." if classes.count(name) > 1 else f"{name}.", model)
        for name, number, model in zip(classes, numbers, models, strict=True)
    ]
