"""The version of tbdprof."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _installed


def version() -> str:
    """Return the installed version; "unreleased" in a checkout that is not installed."""
    try:
        return _installed("tbdprof")
    except PackageNotFoundError:
        return "unreleased"
