"""The sampling process as its parent sees it: start it, send it commands with a time limit, end it."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from tbdprof.collect.pm import statuses
from tbdprof.errors import UnavailableError

INTERPRETER = "TBDPROF_PM_PYTHON"  # names a Python that has cupti-python, if this one has not
LIMIT_S = 900  # the process ends itself after this time
_END_S = 3.0
_STDERR = "stderr.txt"
_MOST_SHOWN = 160

# Load the package by its path: the interpreter may belong to an environment without tbdprof, and its own import path
# must not be extended.
_BEGIN = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("tbdprof", sys.argv.pop(1))
sys.modules["tbdprof"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["tbdprof"])
from tbdprof.collect.pm.sidecar import main
main()
"""

Answer = dict[str, Any]


def command(device: int, interval_ns: int) -> list[str]:
    """Return the command that starts the process, without the folder for its files."""
    python = os.environ.get(INTERPRETER) or sys.executable
    package = Path(__file__).parents[2] / "__init__.py"
    options = {"--device": device, "--interval-ns": interval_ns, "--limit-s": LIMIT_S}
    return [python, "-c", _BEGIN, str(package), *(str(part) for option in options.items() for part in option)]


class Sidecar:
    """A sampling process; its failures raise UnavailableError."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        """Start the process; its files go to a folder."""
        self._said = bytearray()
        self._stderr = folder / _STDERR
        try:
            with self._stderr.open("wb") as errors:
                self._process = subprocess.Popen(
                    [*command, "--folder", str(folder)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    bufsize=0,
                    env=_environment(),
                )
        except OSError as error:
            raise UnavailableError(f"the sampling process cannot be started: {error}") from error
        self._commands, self._answers = cast("tuple[IO[bytes], IO[bytes]]", (self._process.stdin, self._process.stdout))

    def ask(self, question: str | None, state: str, limit_s: float) -> Answer:
        """Send a command, unless it is None, and return the answer, which must have this state."""
        if question is not None:
            self._send(question)
        answer = _read(self._line(limit_s))
        if answer.get("state") == "error":
            parts = (answer.get(name) for name in ("call", "status", "text"))
            call, status, text = parts
            number = status if isinstance(status, int) else statuses.UNKNOWN
            raise UnavailableError(statuses.sentence(str(call), number, str(text or "")))
        if answer.get("state") != state:
            raise UnavailableError(f"the sampling process said {answer.get('state')!r} in place of {state!r}")
        return answer

    def end(self) -> None:
        """End the process, by force if it does not end by itself."""
        try:
            self._send("quit")
        except UnavailableError:
            self._process.kill()
        self._commands.close()
        self._answers.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # a driver call that does not return outlives the kill
                self._process.wait(_END_S)

    def forget(self) -> None:
        """Leave the process alone: in a forked child it belongs to the parent."""
        self._process.returncode = 0

    def _send(self, line: str) -> None:
        try:
            self._commands.write(f"{line}\n".encode())
        except OSError as error:
            raise UnavailableError(self._ended()) from error

    def _line(self, limit_s: float) -> bytes:
        descriptor, until = self._answers.fileno(), time.monotonic() + limit_s
        said = select.poll()  # select() takes no descriptor above 1023, and a training may have more files open
        said.register(descriptor, select.POLLIN)
        while b"\n" not in self._said:
            if not said.poll(max(0.0, until - time.monotonic()) * 1e3):
                raise UnavailableError(f"the sampling process did not answer within {limit_s:g} s")
            more = os.read(descriptor, 65536)
            if not more:
                raise UnavailableError(self._ended())
            self._said.extend(more)
        line, _, rest = bytes(self._said).partition(b"\n")
        self._said[:] = rest
        return line

    def _ended(self) -> str:
        """Say how the process ended, with the last line of its stderr."""
        try:
            status = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "the sampling process closed its output"
        words = self._stderr.read_text(errors="replace").strip().splitlines()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with {status}"
        return f"the sampling process {how}{f': {words[-1][:_MOST_SHOWN]}' if words else ''}"


def _environment() -> dict[str, str]:
    """Return the environment of the process; for another interpreter, without the paths of this one's packages."""
    own = dict(os.environ)
    if own.get(INTERPRETER):
        for name in ("PYTHONPATH", "PYTHONHOME"):
            own.pop(name, None)
    return own


def _read(line: bytes) -> Answer:
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        shown = line[:_MOST_SHOWN].decode(errors="replace")
        raise UnavailableError(f"the sampling process sent an answer that cannot be read: {shown}")
    return answer
