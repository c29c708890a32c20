"""Names of models and layers that are made in the same way in every framework."""

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
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


def around(paths: Sequence[str]) -> str | None:
    """Return the layer that contains all of these layers, or None if there are none."""
    if not paths:
        return None
    places = zip(*(path.split(".") for path in paths), strict=False)
    return ".".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, places))


def optimizer_kind(made: type, known: Mapping[str, str], own: Collection[str]) -> str:
    """Return an optimizer's kind by its class; a known kind only for a class of the framework's `own` packages.

    A kind says how much state an optimizer keeps. Other packages have classes of the same names that keep less or more.
    """
    package, name = str(made.__module__).partition(".")[0], made.__name__
    if package in own:
        return known.get(name, name)
    return f"{package}.{name}" if name.lower() in known.values() else name
