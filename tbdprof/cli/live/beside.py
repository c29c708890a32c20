"""The process that shows a run beside it (`tbdprof run --live`), at the lowest priority.

It reads the run's file and nothing else. It draws on standard error: in the last lines of a terminal, otherwise line by
line. Standard output stays the program's. It ends when something comes on standard input, or nothing can come any more.
"""

import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Group
from rich.rule import Rule

from tbdprof.analysis.summary import summarize
from tbdprof.cli import streams
from tbdprof.cli.live.bottom import Bottom
from tbdprof.cli.live.follow import EVERY_S, Seen, Stage, follow
from tbdprof.cli.live.watch import Lines, can_draw, view
from tbdprof.errors import TbdprofError
from tbdprof.facts.file.places import mark
from tbdprof.facts.file.watching import is_written, latest
from tbdprof.facts.ranks import files_of

HEIGHT = 7  # lines: a rule, and the view
LOWEST = 19  # priority


def main(argument: dict[str, Any]) -> None:
    """Show the run of a file until something comes on standard input, or nothing can come any more."""
    os.nice(LOWEST)
    path, older = Path(argument["path"]), {name: each and tuple(each) for name, each in argument["older"].items()}
    streams.prepare()
    bottom = Bottom(sys.stderr, HEIGHT) if can_draw(sys.stderr) else None
    lines = Lines(path, streams.tell)

    def show(seen: Seen) -> None:
        if bottom is None:
            lines(seen)
        else:
            bottom.draw(Group(Rule(style="dim"), view(path, seen)))

    def suspend(number: int, frame: FrameType | None) -> None:
        if bottom is not None:
            bottom.close()
        os.kill(os.getpid(), signal.SIGSTOP)

    signal.signal(signal.SIGTSTP, suspend)
    try:
        with suppress(EOFError, OSError):  # the run ended, or its terminal is gone
            _show(path, older, show)
    except TbdprofError as error:
        streams.tell(str(error))
    finally:
        with suppress(OSError):
            if bottom is not None:
                bottom.close()


def _show(path: Path, older: Mapping[str, object], show: Callable[[Seen], None]) -> None:
    """Show a run until it ends; raise EOFError then."""
    while (file := _file_of(path, older)) is None:
        show(Seen(Stage.PREPARING))
        _pause(EVERY_S)
    for seen in follow(file, summarize, _pause, older.get(str(file))):
        show(seen)
    _pause(None)


def _file_of(path: Path, older: Mapping[str, object]) -> Path | None:
    """Return the file that is new: the run's own, or that of the first rank, None: there is none yet."""
    ranks = [each for each in files_of(path).values() if mark(each) != older.get(str(each))]
    if ranks:
        return ranks[0]
    newest = path if is_written(path) is False else latest(path)
    return None if newest is None or mark(newest) in (None, older.get(str(path))) else path


def _pause(seconds: float | None) -> None:
    """Wait; raise EOFError if the run ends meanwhile."""
    if select.select([sys.stdin], [], [], seconds)[0]:
        raise EOFError
