"""A process that nothing has happened in yet, for what can only be measured there."""

import json
import subprocess
import sys
from typing import Any

from tbdprof.errors import UnavailableError

# Isolated, for a profiled script's PYTHONPATH would attach tbdprof to this process as well.
_PROGRAM = """
import importlib, json, sys
sys.path[:], module, argument = json.loads(sys.argv[1])
importlib.import_module(module).main(argument)
"""


def ask(module: str, argument: object, limit_s: float) -> dict[str, Any]:
    """Run a module's `main` with an argument in a fresh process; return the JSON object it printed last.

    Raises UnavailableError where it fails or takes longer than the limit.
    """
    command = [sys.executable, "-I", "-c", _PROGRAM, json.dumps([sys.path, module, argument])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=True)
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
        raise UnavailableError(f"a process that was to measure it failed: {_reason(error)}") from error
    return told


def _reason(error: Exception) -> str:
    told = getattr(error, "stderr", None) or str(error)
    return str(told).strip().rpartition("\n")[2] or type(error).__name__
