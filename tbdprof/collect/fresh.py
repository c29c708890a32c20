"""Run code in a fresh process, for what can be measured only there."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tbdprof.errors import UnavailableError

_END_S = 3.0
_FAILED = "a process that was to measure it failed"
# Isolated: a profiled script's PYTHONPATH would attach tbdprof to this process as well.
_PROGRAM = """
import importlib, json, sys
sys.path[:], module, argument = json.loads(sys.argv[1])
importlib.import_module(module).main(argument)
"""


def ask(module: str, argument: object, limit_s: float) -> dict[str, Any]:
    """Run a module's `main` with an argument in a fresh process; return the JSON object that it printed last.

    Raise UnavailableError if it fails or takes longer than the limit.
    """
    try:
        status, printed, complaints = run(command(module, argument), limit_s)
        if status:
            raise UnavailableError(f"{_FAILED}: {_last_line(complaints) or f'it ended with {status}'}")
        answer: dict[str, Any] = json.loads(printed.splitlines()[-1])
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{_FAILED}: it had not ended after {limit_s:g} s") from error
    except (OSError, ValueError, LookupError) as error:
        raise UnavailableError(f"{_FAILED}: {_last_line(str(error)) or type(error).__name__}") from error
    return answer


def command(module: str, argument: object) -> list[str]:
    """Return the command that runs a module's `main` with an argument in a fresh process."""
    return [sys.executable, "-I", "-c", _PROGRAM, json.dumps([sys.path, module, argument])]


def run(command: Sequence[str], limit_s: float, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Return a process's exit status and what it printed to each of its outputs.

    Raise TimeoutExpired if it takes too long. Then it is killed. If a driver call that does not return keeps it alive
    after that, it is left alone.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    try:
        printed, complaints = process.communicate(timeout=limit_s)
    except BaseException:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_END_S)
        raise
    return process.returncode, printed, complaints


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]
