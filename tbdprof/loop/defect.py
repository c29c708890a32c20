"""One line about a failure of tbdprof itself, for the user to report."""

import signal
import traceback
from types import CodeType

from tbdprof.errors import UnavailableError, visible
from tbdprof.loop.version import version

MOST_CHARACTERS = 200


def defect_line(where: str, error: BaseException) -> str:
    """Return where tbdprof failed, the error with its place in the code, the version, and the request to report it.

    An UnavailableError is no defect: it has its own line.
    """
    if isinstance(error, UnavailableError):
        return f"{where}: {error}"
    said = first_line(error)[:MOST_CHARACTERS]
    kind = type(error).__name__
    why = kind if said == kind else f"{kind}: {said}"
    return f"tbdprof {version()} failed {where}: {why} ({_place(error)}); please report this line"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its class if it has none."""
    try:
        said = str(error).strip()
    except Exception:  # noqa: BLE001 - the text of a foreign error may itself fail
        said = ""
    return visible(said.partition("\n")[0]) or type(error).__name__


def _place(error: BaseException) -> str:
    """Return the last module of tbdprof that the error passed through, and the line there."""
    frames = [(frame.f_globals.get("__name__", ""), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(name, line) for name, line in frames if name.partition(".")[0] == "tbdprof"]
    name, line = (own or frames or [("no place", 0)])[-1]
    return f"{name}:{line}"


def by_signal(error: BaseException) -> bool:
    """Return whether a signal's handler raised an error: then it is the user's, wherever the signal came."""
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: object) -> CodeType | None:
    """Return the code of a function, of a method, of what a partial calls, or of a callable object."""
    called = getattr(handler, "func", handler)
    called = called if hasattr(called, "__code__") else getattr(called, "__call__", None)  # noqa: B004
    code = getattr(called, "__code__", None)
    return code if isinstance(code, CodeType) else None
