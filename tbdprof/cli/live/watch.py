"""`tbdprof watch`: the view of a run in another terminal."""

import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from rich.console import Console, RenderableType
from rich.live import Live as Drawn
from rich.text import Text

from tbdprof.cli.live.follow import Seen, Stage, Summarize, follow
from tbdprof.cli.streams import emit, say_interrupted, tell
from tbdprof.errors import UsageError, visible
from tbdprof.loop import ending
from tbdprof.report.terminal_parts import live as report
from tbdprof.results.time import Live

PLAIN_EVERY_S = 10.0
GONE = 1  # the exit code
_WITHOUT_FILE = {
    Stage.WAITING: "waiting, there is no such file yet",
    Stage.PREPARING: "waiting, a run has claimed it and has recorded nothing yet",
}


def watch(path: Path, summarize: Summarize) -> int:
    """Show a run until its recording ends; return 0, or 1 if its process is gone without an end."""
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}: give the file that a run records into")
    try:
        with ending.raised():
            seen = _on_terminal(path, summarize) if can_draw(sys.stdout) else _in_lines(path, summarize)
    except KeyboardInterrupt as error:
        return say_interrupted(error, "the run that was watched goes on")
    tell(state(path, seen))
    return GONE if seen.stage is Stage.GONE else 0


def can_draw(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which a view can be drawn anew in its place."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _on_terminal(path: Path, summarize: Summarize) -> Seen:
    with Drawn(console=Console(), auto_refresh=False) as drawn:
        for seen in follow(path, summarize):
            drawn.update(view(path, seen), refresh=True)
    return seen


def _in_lines(path: Path, summarize: Summarize) -> Seen:
    show = Lines(path, emit)
    for seen in follow(path, summarize):
        show(seen)
    return seen


def view(path: Path, seen: Seen) -> RenderableType:
    """Return what a terminal shows."""
    if seen.run is None or seen.live is None:
        return Text(visible(state(path, seen)))
    return report.view(seen.run, seen.live, seen.summary, f"{_sentence(seen)} · {path}")


class Lines:
    """Says a line where another window begins or the run ends, and one now and then meanwhile."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say
        self._known: object = None
        self._line = ""
        self._said_s = 0.0

    def __call__(self, seen: Seen) -> None:
        """Say a line if it is time to."""
        known = seen.stage, seen.live and (seen.live.window, seen.live.ended_windows)
        line = self._of(seen)
        now = time.monotonic()
        if known == self._known and (line == self._line or now - self._said_s < PLAIN_EVERY_S):
            return
        self._known, self._line, self._said_s = known, line, now
        self._say(line)

    def _of(self, seen: Seen) -> str:
        if seen.run is None or seen.live is None:
            return visible(state(self._path, seen))
        return report.line(seen.run, seen.live, seen.summary)


def state(path: Path, seen: Seen) -> str:
    """Return a line on how far the run is that records into a file."""
    after = f"; tbdprof report {shlex.quote(str(path))}" if seen.stage is Stage.ENDED else ""
    return f"{path}: {_sentence(seen)}{after}"


def _sentence(seen: Seen) -> str:
    live, run = seen.live, seen.run
    if live is None or run is None:
        return _WITHOUT_FILE.get(seen.stage, "the run that had claimed it is gone, and kept no recording")
    recorded = f"{_steps(live)}, and {live.ended_windows} windows that ended"
    if seen.stage is Stage.RUNNING:
        return f"{_steps(live)} so far"
    if seen.stage is Stage.UNSURE:
        return f"{_steps(live)}; this file system has no locks to see whether the run goes on"
    if seen.stage is Stage.GONE:
        where = f"the {live.window} window" if live.is_open else "no window"
        return f"the run is gone, killed in {where}; it recorded {recorded}"
    return f"the recording is {'complete' if run.complete else f'not complete ({run.ended_by})'}: {recorded}"


def _steps(live: Live) -> str:
    return f"{live.steps} step{'s' * (live.steps != 1)}"
