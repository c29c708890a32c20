"""Profile an unchanged script: start it with tbdprof attached, and pass on its exit code.

The script runs as its own process. A `sitecustomize` that is first on its path lets `launch.attach` watch the framework
from its import on. The end of an optimizer's step is the end of a training step. A launcher passes this on to the
processes that it starts, and the first one to take a step is recorded.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

from tbdprof.errors import UsageError
from tbdprof.facts.file.placing import claim
from tbdprof.hooks import FRAMEWORKS, about
from tbdprof.launch.order import VARIABLE
from tbdprof.loop.plan import Schedule

PACKAGE = Path(__file__).parents[1] / "__init__.py"
STARTUP = Path(__file__).parent / "startup"
AS_SCRIPT = "to profile a script, type: tbdprof run --"
NOTHING_RECORDED = (
    "nothing was recorded: no process of the script took an optimizer step in torch, mxnet or tensorflow, "
    "or its Python lacks what tbdprof needs, or a launcher kept tbdprof's PYTHONPATH from it; "
    "put tbdprof.profile around the loop"
)
_OF_SIGNAL = 128  # a shell adds this to a signal's number


def default_path(script: Sequence[str]) -> Path:
    """Return a file named after the script and the current time."""
    named = next((Path(word).stem for word in script if word.endswith(".py")), Path(script[0]).name)
    return Path(f"{named}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.tbd")


def run(
    script: Sequence[str],
    path: Path,
    *,
    framework: str | None = None,
    schedule: Schedule = Schedule(),  # noqa: B008 - frozen
    force: bool = False,
    quiet_stdout: bool = False,
) -> int:
    """Run a command line with tbdprof attached and return its exit code (128 + n for a signal n).

    Without a framework, the first one that takes a step is recorded. With `quiet_stdout` the script's stdout goes to
    stderr. Raise UsageError if the command cannot be started.
    """
    if framework not in (None, *FRAMEWORKS):
        raise UsageError(f"unknown framework {framework!r}: choose {' or '.join(FRAMEWORKS)}")
    claim(path, force=force)
    with TemporaryDirectory(prefix="tbdprof-") as folder:
        order = {
            "path": str(path.resolve()),
            "package": str(PACKAGE),
            "startup": str(STARTUP),
            "token": str(_token(folder)),
            "frameworks": FRAMEWORKS if framework is None else (framework,),
            "imported_by": {package: name for name in FRAMEWORKS for package in about(name).imported_by},
            "schedule": asdict(schedule),
        }
        code = _wait(_start(script, order, sys.stderr if quiet_stdout else None))
    return code if code >= 0 else _OF_SIGNAL - code


def nothing_recorded(code: int) -> str:
    """Return why nothing may have been recorded of a script with this exit code, and the signal if there was one."""
    try:
        name = signal.Signals(code - _OF_SIGNAL).name
    except ValueError:
        return NOTHING_RECORDED
    return f"the script ended with {code} ({name}); {NOTHING_RECORDED}"


def _token(folder: str) -> Path:
    token = Path(folder) / "token"
    token.touch()
    return token


def _start(script: Sequence[str], order: Mapping[str, object], stdout: TextIO | None) -> subprocess.Popen[bytes]:
    roots = [str(STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, VARIABLE: json.dumps(order), "PYTHONPATH": os.pathsep.join(roots)}
    try:
        return subprocess.Popen(script, env=environment, stdout=stdout)
    except OSError as error:
        if script[0].endswith(".py") and Path(script[0]).is_file():
            raise UsageError(f"cannot start {script[0]}: {AS_SCRIPT} python {shlex.join(script)}") from error
        raise UsageError(f"cannot start {script[0]}: {error.strerror}") from error


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process; an interrupt reaches it, too, and the process decides when to end."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
