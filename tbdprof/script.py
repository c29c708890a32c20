"""Profile an unchanged script: start it with tbdprof attached, pass its exit code through.

The script runs as its own process. A `sitecustomize` on its path, found before any other, lets `tbdprof.attach` watch
the framework from its import on; an end of an optimizer's step is an end of a step.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from tbdprof.attach import VARIABLE
from tbdprof.errors import UsageError
from tbdprof.recording import claim

STARTUP = Path(__file__).parent / "startup"
NOTHING_RECORDED = (
    "nothing was recorded: the script never took an optimizer step in torch or mxnet, "
    "or its Python cannot import tbdprof"
)
FORWARDED = ("framework", "steps", "warmup", "max_warmup", "repeat")


def default_path(script: Sequence[str]) -> Path:
    """Return a file named after the script and this second."""
    named = next((Path(word).stem for word in script if word.endswith(".py")), Path(script[0]).name)
    return Path(f"{named}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.tbd")


def run(script: Sequence[str], path: Path, asked: Mapping[str, object], *, quiet_stdout: bool) -> int:
    """Run a command line with tbdprof attached and return its exit code (128 + n for a signal n).

    With `quiet_stdout` the script's stdout goes to stderr. Raises UsageError where the command cannot be started.
    """
    claim(path, force=bool(asked["force"]))
    order = {"path": str(path.resolve()), **{name: asked[name] for name in FORWARDED}}
    roots = [
        str(STARTUP),
        str(Path(__file__).parent.parent),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
    environment = {**os.environ, VARIABLE: json.dumps(order), "PYTHONPATH": os.pathsep.join(roots)}
    try:
        process = subprocess.Popen(script, env=environment, stdout=sys.stderr if quiet_stdout else None)
    except OSError as error:
        raise UsageError(f"cannot start {script[0]}: {error.strerror}") from error
    code = _wait(process)
    return code if code >= 0 else 128 - code


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process; an interrupt reaches it too, and it decides when to end."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
