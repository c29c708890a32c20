"""`tbdprof run --live`: starts the process that shows the run (`beside`), and ends it with the run."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tbdprof.collect import fresh
from tbdprof.facts.file.places import mark
from tbdprof.facts.ranks import files_of

VIEW = "tbdprof.cli.live.beside"
_RUNS_OWN = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)  # signals: the view ends after the run


@contextmanager
def shown(path: Path) -> Iterator[None]:
    """Show the run that the block records into a file, or the first of its ranks."""
    older = {str(each): mark(each) for each in (path, *files_of(path).values())}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _RUNS_OWN)
    try:
        command = fresh.command(VIEW, {"path": str(path), "older": older})
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield
    finally:
        process.communicate(b"end\n")  # processes that the run forked may hold the pipe open
