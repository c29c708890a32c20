"""The folder of a sweep: `sweep.json` is its plan, and `points/` holds the files of each point.

A point named N has N.tbd (its recording), N.json (how it ended) and N.log (what its process printed). A point without
N.json has not ended. So what a killed sweep left is a sweep that can go on.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tbdprof.errors import RecordingFormatError, UsageError
from tbdprof.facts.file.placing import ELSEWHERE, lock
from tbdprof.results.sweep import End
from tbdprof.sweep import PLAN, is_folder, outcome
from tbdprof.sweep.outcome import Outcome
from tbdprof.sweep.plan import Plan, Point, as_json, from_json, merged

POINTS = "points"
LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of a sweep that has a plan."""

    path: Path
    plan: Plan

    @property
    def points(self) -> Path:
        """Return the folder of the points' files."""
        return self.path / POINTS

    def recording(self, point: Point) -> Path:
        """Return the file of a point's recording."""
        return self.points / f"{point.name}.tbd"

    def log(self, point: Point) -> Path:
        """Return the file of what a point's process prints."""
        return self.points / f"{point.name}.log"

    def outcome(self, point: Point) -> Outcome | None:
        """Return how a point ended; None: it has not, or its recording is gone."""
        found = outcome.read(self.points / f"{point.name}.json")
        if found is not None and found.end is End.FINISHED and not self.recording(point).exists():
            return None
        return found

    def forget(self, point: Point) -> None:
        """Remove how a point ended: it begins anew."""
        (self.points / f"{point.name}.json").unlink(missing_ok=True)

    def keep(self, point: Point, found: Outcome) -> None:
        """Write how a point ended."""
        outcome.write(found, self.points / f"{point.name}.json")


def load(path: Path) -> Folder:
    """Return the sweep in a folder; raise UsageError if there is none, RecordingFormatError if its plan is damaged."""
    if not os.path.isdir(path):  # noqa: PTH112 - a Path raises OSError for a name that is too long
        raise UsageError(f"{path} is no folder: give the folder of a sweep (tbdprof sweep … -o {path})")
    try:
        return Folder(path, from_json((path / PLAN).read_bytes()))
    except FileNotFoundError:
        raise UsageError(f"{path} holds no sweep: give a folder that `tbdprof sweep -o` made") from None
    except OSError as error:
        raise UsageError(f"cannot read {path / PLAN}: {error.strerror}") from error
    except (ValueError, TypeError, LookupError) as error:
        raise RecordingFormatError(
            f"{path / PLAN} is no plan of a sweep ({error}): restore it, or {ELSEWHERE}"
        ) from error


def opened(path: Path, plan: Plan) -> Folder:
    """Return the folder with a plan, a new one or one that holds a sweep of the same program.

    The points of an older plan stay. Raise UsageError if the folder holds something else, or cannot be written.
    """
    if is_folder(path):
        joined = merged(load(path).plan, plan)
        if joined is None:
            raise UsageError(
                f"{path} holds another sweep: {ELSEWHERE}, or go on with that one: tbdprof sweep -o {path}"
            )
        plan = joined
    try:
        path.mkdir(parents=True, exist_ok=True)
        outcome.write_whole(path / PLAN, as_json(plan))  # first: without it, the folder is nobody's
        (path / POINTS).mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; {ELSEWHERE}") from error
    return Folder(path, plan)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let no other sweep run in a folder in the block; raise UsageError if one does, or if other files are there."""
    if path.exists() and not is_folder(path) and (not path.is_dir() or {each.name for each in path.iterdir()} - {LOCK}):
        raise UsageError(f"{path} exists and holds no sweep: {ELSEWHERE}")
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = (path / LOCK).open("w")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; {ELSEWHERE}") from error
    with file:
        try:
            lock(file.fileno())
        except BlockingIOError:
            raise UsageError(f"a sweep is running in {path}: wait for it, or {ELSEWHERE}") from None
        yield
