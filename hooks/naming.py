"""What the names of a model's parameters begin with, the same in every framework."""

from collections.abc import Sequence
from typing import TypeVar

Model = TypeVar("Model")


def prefixes(models: Sequence[Model]) -> list[tuple[str, Model]]:
    """Return each model with its prefix: none for a single one, else its class, numbered where it comes twice."""
    if len(models) == 1:
        return [("", models[0])]
    classes = [type(model).__name__.lower() for model in models]
    numbers = [classes[:i].count(name) for i, name in enumerate(classes)]
    return [
        (f"{name}{number}." if classes.count(name) > 1 else f"{name}.", model)
        for name, number, model in zip(classes, numbers, models, strict=True)
    ]
