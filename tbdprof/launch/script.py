"""Profile an unchanged script: start it with tbdprof attached, and pass on its exit code.

The script runs as its own process. A `sitecustomize` that is first on its path lets `launch.attach` watch the framework
from its import on. The end of an optimizer's step is the end of a training step. A launcher passes this on to the
processes that it starts, and the first one to take a step is recorded, or each rank of those that train together.
"""

import json
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

from tbdprof.errors import UsageError
from tbdprof.facts.file.places import mark
from tbdprof.facts.file.placing import check, claim, write_anew
from tbdprof.facts.file.reading import load
from tbdprof.facts.ranks import files_of, path_of
from tbdprof.facts.recording import KILLED, Recording
from tbdprof.hooks import FRAMEWORKS, about
from tbdprof.hooks.ranks import launched_rank
from tbdprof.launch.order import IMPORTED, RANK, VARIABLE, Said
from tbdprof.launch.processes import relay
from tbdprof.launch.processes.relay import Ended
from tbdprof.loop.ending import OF_SIGNAL
from tbdprof.loop.plan import Schedule

PACKAGE = Path(__file__).parents[1] / "__init__.py"
STARTUP = Path(__file__).parent / "startup"
AS_SCRIPT = "to profile a script, type: tbdprof run --"
NOTHING_RECORDED = "nothing was recorded: {seen}; put tbdprof.profile around the loop"
NOTHING_IMPORTED = (
    "no process of the script was seen to import torch, mxnet or tensorflow "
    "(a launcher may have kept tbdprof's PYTHONPATH from it)"
)
_OTHER_ASKED = "no process of the script was seen to import {}, the one framework that --framework lets be watched"


def default_path(script: Sequence[str]) -> Path:
    """Return a file named after the script, or the module of `python -m`, and the current time."""
    module = next((after for word, after in pairwise(script) if word == "-m"), Path(script[0]).name)
    named = next((Path(word).stem for word in script if word.endswith(".py")), module)
    return Path(f"{named}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.tbd")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a script ended, and what its recording is to say about that."""

    code: int  # as a shell gives it: 128 + n for a signal n
    paths: tuple[Path, ...]  # of its recordings: none, one, or one of each rank
    stepped: bool  # an optimizer step was taken while tbdprof watched
    killed_by: str  # why a recording ends that its process could not end
    not_kept: str  # why no file was kept, as the script's process said at its end; otherwise empty
    imported: tuple[str, ...] = ()  # the frameworks that a process imported while tbdprof watched
    signals: tuple[int, ...] = ()  # that came meanwhile, were to end tbdprof, and were passed on
    asked: str | None = None  # the framework that alone was watched


def run(
    script: Sequence[str],
    path: Path,
    *,
    framework: str | None = None,
    schedule: Schedule = Schedule(),  # noqa: B008 - frozen
    said: Said = Said(),  # noqa: B008 - frozen
    force: bool = False,
    quiet_stdout: bool = False,
) -> Outcome:
    """Run a command line with tbdprof attached to its end.

    Without a framework, the first one that takes a step is recorded. With `quiet_stdout` the script's stdout goes to
    stderr. If this process is a rank itself, `path` is that of all ranks. Raise UsageError if the command cannot be
    started or the file not be written.
    """
    if framework not in (None, *FRAMEWORKS):
        raise UsageError(f"unknown framework {framework!r}: choose {' or '.join(FRAMEWORKS)}")
    rank = launched_rank()
    older = _older_ranks(path, force=force or rank is not None)  # in a rank, others write theirs now
    own = path if rank is None else path_of(path, rank.number)
    with claim(own, force=force) as claimed, TemporaryDirectory(prefix="tbdprof-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        order = {
            "path": str(claimed.target),
            "named": os.path.abspath(path),  # noqa: PTH100 (ranks lie beside a link, not beside what it points at)
            "rank": rank,
            "force": force,
            "package": str(PACKAGE),
            "startup": str(STARTUP),
            "token": str(_token(folder)),
            "frameworks": FRAMEWORKS if framework is None else (framework,),
            "imported_by": {package: name for name in FRAMEWORKS for package in about(name).imported_by},
            "schedule": asdict(schedule),
            "said": asdict(said),
        }
        ended = _run(script, order, folder, sys.stderr if quiet_stdout else None, claimed.handle)
        code = ended.status if ended.status >= 0 else OF_SIGNAL - ended.status
        is_its_own = (folder / str(ended.number)).exists()
        ranks = _ranks(folder)
        stepped = bool(ranks) or not Path(str(order["token"])).exists()
        found = [own] * claimed.is_kept + _kept([path_of(path, rank) for rank in ranks], older)
        killed_by = _killed_by(code, is_its_own=is_its_own)
        imported = tuple(name for name in FRAMEWORKS if (folder / IMPORTED.format(name)).exists())
        return Outcome(code, tuple(found), stepped, killed_by, _word_of(folder), imported, ended.signals, framework)


def _older_ranks(path: Path, *, force: bool) -> dict[Path, object]:
    """Return the marks of the ranks' files that there are already; raise UsageError if these may not be replaced."""
    found = files_of(path).values()
    for each in found:
        check(each, force=force)
    return {each: mark(each) for each in found}


def _ranks(folder: Path) -> list[int]:
    """Return the ranks that took a step while tbdprof watched."""
    names = (each.name.removeprefix(RANK) for each in folder.glob(f"{RANK}*"))
    return sorted(int(name) for name in names if name.isdecimal())


def _kept(paths: Sequence[Path], older: Mapping[Path, object]) -> list[Path]:
    """Return which files hold a new recording, and remove what ranks that were killed left beside theirs."""
    for path in paths:
        with suppress(UsageError):  # a rank that outlives its launcher still writes
            claim(path, force=True, room_bytes=0).release()
    return [path for path in paths if mark(path) not in (None, older.get(path))]


def recorded(path: Path, outcome: Outcome) -> Recording:
    """Return a recording of a script; raise RecordingFormatError if it cannot be read.

    If its process was killed, the reason becomes what the script's end shows, in the file too if it can be written.
    """
    recording = load(path)
    if recording.run.ended_by == KILLED:
        recording.run = replace(recording.run, ended_by=outcome.killed_by)
        with suppress(UsageError):
            write_anew(recording, path)
    return recording


def _word_of(folder: Path) -> str:
    """Return why no file was kept, as the recorded processes wrote into files that are named after them."""
    found = (each.read_text(encoding="utf-8") for each in folder.iterdir() if each.name.isdecimal())
    return "; ".join(dict.fromkeys(filter(None, found)))


def _killed_by(code: int, *, is_its_own: bool) -> str:
    """Return why a recording ends without an end; the code is `its own` if no launcher is between."""
    name = _signal(code)
    if not is_its_own:
        return f"{KILLED}; the command that started it ended with {code}{f' ({name})' if name else ''}"
    return f"the script was killed by {name}" if name else f"the script ended with {code} at once, without Python's end"


def _signal(code: int) -> str | None:
    try:
        return signal.Signals(code - OF_SIGNAL).name
    except ValueError:
        return None


def not_recorded(path: Path, outcome: Outcome) -> str:
    """Return why nothing may have been recorded of a script, and the signal that ended it if there was one."""
    name = _signal(outcome.code)
    said = f"the script ended with {outcome.code} ({name}); " if name else ""
    if not outcome.stepped:
        return said + NOTHING_RECORDED.format(seen=_seen(outcome))
    if outcome.not_kept:
        return said + outcome.not_kept
    if path.exists():
        return f"{said}nothing was recorded after the warm-up, so {path} is as it was"
    return f"{said}nothing was recorded: watching ended before a step did"


def _seen(outcome: Outcome) -> str:
    """Return what was seen of a script in which no step was."""
    each = [f"{about(name).title} was imported, but {about(name).no_step}" for name in outcome.imported]
    nothing = NOTHING_IMPORTED if outcome.asked is None else _OTHER_ASKED.format(outcome.asked)
    return ", and ".join(each) or nothing


def _token(folder: Path) -> Path:
    token = folder / "token"
    token.touch()
    return token


def _run(script: Sequence[str], order: Mapping[str, object], folder: Path, stdout: TextIO | None, lock: int) -> Ended:
    """Run a command to its end; raise UsageError if it cannot be started.

    It shares the lock of its file: if this process is killed, no other run writes there until the command has ended.
    """
    roots = [str(STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, VARIABLE: json.dumps(order), "PYTHONPATH": os.pathsep.join(roots)}
    try:
        return relay.run(script, environment, folder, stdout, kept=[lock])
    except OSError as error:
        if script[0].endswith(".py") and Path(script[0]).is_file():
            raise UsageError(f"cannot start {script[0]}: {AS_SCRIPT} python {shlex.join(script)}") from error
        raise UsageError(f"cannot start {script[0]}: {error.strerror}") from error
