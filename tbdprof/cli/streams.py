"""Standard output and error as a command needs them: open, able to write every character, and failing in one line."""

import codecs
import errno
import json
import os
import re
import sys
import traceback

import click

from tbdprof.errors import TbdprofError, visible
from tbdprof.loop import ending

# What stands in for a character that the output's encoding lacks; any other is its escape.
ALIKE = {
    "·": "-",
    "×": "x",
    "…": "...",
    "−": "-",
    "–": "-",
    "→": "->",
    "µ": "u",
    "μ": "u",
    "²": "2",
    "³": "3",
    "█": "#",
    "░": ".",
    "▁": "_",
    "▂": ".",
    "▃": ":",
    "▄": "-",
    "▅": "=",
    "▆": "+",
    "▇": "*",
    "─": "-",
    "━": "-",
}
INTERRUPTED = 130
_IN_ASCII = "tbdprof.ascii"
_HINT = re.compile(
    r"[:;,] ((?:or )?(?:add|choose|close|convert|delete|end|fill|give|install|leave|make|mend|name|pass|pip install|"
    r"please report|put|restore|run|set|take|to profile a script, type|try|type|write)\b.*)"
)


class OutputError(TbdprofError):
    """Report that standard output cannot be written."""


def prepare() -> None:
    """Open the standard streams that were closed, and let no character fail that their encoding lacks.

    A file that tbdprof opens would otherwise take the number of a closed stream. What is written to a closed standard
    output fails; a closed standard error is ignored.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_RDWR)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    codecs.register_error(_IN_ASCII, _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_IN_ASCII)


def emit(text: str) -> None:
    """Print a result; raise OutputError if standard output takes none, BrokenPipeError if its reader has ended."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        raise
    except (OSError, ValueError) as error:
        raise output_error(error) from error


def output_error(error: OSError | ValueError) -> OutputError:
    """Return the error for what was raised where standard output was written; its buffer is discarded."""
    discard_output()
    known = {errno.ENOSPC: "the disk is full", errno.EBADF: "it is closed"}
    return OutputError(f"cannot write the output: {known.get(getattr(error, 'errno', 0), str(error))}")


def tell(message: str) -> None:
    """Print one line on standard error; if nobody reads it, nothing happens."""
    try:
        sys.stderr.write(f"tbdprof: {visible(message)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def fail(message: str, code: int) -> int:
    """Report an error in one line, and return the exit code. With --json it is an object on standard output instead."""
    if not wants_json():
        tell(message)
        return code
    hint = _HINT.search(message)
    error = message if hint is None else message[: hint.start()]
    try:
        emit(json.dumps({"error": visible(error), "hint": None if hint is None else visible(hint[1])}, indent=2))
    except (BrokenPipeError, OutputError):
        tell(message)
    return code


def failed(error: Exception) -> int:
    """Report an error, and return the exit code; a traceback only where -v asks for it."""
    if wants_tracebacks():
        traceback.print_exception(error)
    if isinstance(error, click.exceptions.Abort):
        return fail("interrupted", INTERRUPTED)
    if isinstance(error, click.ClickException):
        return fail(error.format_message(), error.exit_code)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EBADF):  # click could not print the help
        error = output_error(error)
    if isinstance(error, OutputError):
        tell(str(error))
        return error.exit_code
    if isinstance(error, TbdprofError):
        return fail(str(error), error.exit_code)
    from tbdprof.loop.defect import defect_line

    return fail(defect_line(f"in `{' '.join(['tbdprof', *sys.argv[1:2]])}`", error), 1)


def say_interrupted(error: KeyboardInterrupt, kept: str) -> int:
    """Say that a signal ended a command, and what is kept; return the exit code."""
    said = str(error) if isinstance(error, ending.Terminated) else "interrupted"
    return fail(f"{said}; {kept}", ending.OF_SIGNAL + ending.number(error))


def wants_json() -> bool:
    """Return whether the command line asks for JSON, even where it cannot be parsed."""
    return "--json" in _own_words()


def wants_tracebacks() -> bool:
    """Return whether the command line asks for the tracebacks of errors (-v), even where it cannot be parsed."""
    return any(re.fullmatch("--verbose|-q?vq?", word) for word in _own_words())


def _own_words() -> list[str]:
    """Return the command line up to `--`: what follows is a script's."""
    words = sys.argv[1:]
    return words[: words.index("--") if "--" in words else None]


def discard_output() -> None:
    """Let what is still in the buffer go nowhere: Python would try once more to write it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(ALIKE.get(each) or each.encode("unicode_escape").decode() for each in lacking), error.end
