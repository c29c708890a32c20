"""Import torch; if that fails, say which command to type."""

import importlib

from tbdprof.errors import UnavailableError


def import_torch() -> None:
    """Import torch; raise UnavailableError if that is not possible."""
    try:
        importlib.import_module("torch")
    except (ImportError, OSError) as error:
        raise UnavailableError(_message(error)) from error


def _message(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return "torch is not installed: pip install 'tbdprof[torch]'"
    return f"torch cannot be imported: {' '.join(str(error).split())}"
