"""Profile the loops of other people's libraries: a callback for each library, imported with it alone."""

_LIBRARIES = ("gluon", "huggingface", "lightning")


def __getattr__(name: str) -> object:
    """Import the module of a library when it is first used."""
    from importlib import import_module

    if name not in _LIBRARIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
