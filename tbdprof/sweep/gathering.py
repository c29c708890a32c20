"""What a sweep found: the figures of its points, from their recordings, and the knees."""

from pathlib import Path

from tbdprof.analysis.summary import summarize
from tbdprof.analysis.sweep.figures import figures
from tbdprof.analysis.sweep.knee import knees
from tbdprof.errors import RecordingFormatError
from tbdprof.facts.file.reading import load
from tbdprof.results.sweep import End, PointFigures, Sweep, SweepPoint
from tbdprof.sweep import folder as folders
from tbdprof.sweep.folder import Folder
from tbdprof.sweep.outcome import Outcome
from tbdprof.sweep.plan import Plan, Point, Script
from tbdprof.sweep.running import outcomes, total


def load_sweep(path: str | Path) -> Sweep:
    """Return what the sweep in a folder has found so far; `rows` are its points as plain rows.

    Raise UsageError if the folder holds no sweep, RecordingFormatError if its plan is damaged. A point whose recording
    is damaged is a point that failed.
    """
    return gathered(folders.load(Path(path)))


def gathered(folder: Folder) -> Sweep:
    """Return what is known of a sweep, from the recordings of its points."""
    plan, ended = folder.plan, outcomes(folder)
    points = tuple(_point(folder, point, outcome) for point, outcome in ended)
    expected = total(plan)
    return Sweep(
        title=_title(plan),
        swept=plan.swept,
        batch=plan.batch or "",
        points=points,
        knees=tuple(knees(points, plan.swept, plan.batch)),
        to_come=None if expected is None else expected - len(ended),
    )


def _title(plan: Plan) -> str:
    """Return the names of the models, or of the script."""
    if isinstance(plan.program, Script):
        words = plan.program.command
        return next((Path(word).name for word in words if word.endswith(".py")), Path(words[0]).name)
    return ", ".join(str(name) for name in plan.axes.get("model", (plan.program.model,)))


def _point(folder: Folder, point: Point, outcome: Outcome) -> SweepPoint:
    end, reason, found = outcome.end, outcome.reason, None
    if end is End.FINISHED:
        try:
            found = _figures(folder, point)
        except RecordingFormatError as error:
            end, reason = End.FAILED, str(error)
    return SweepPoint(point.name, point.settings, end, reason, outcome.seconds, outcome.machine, found)


def _figures(folder: Folder, point: Point) -> PointFigures:
    name = folder.plan.batch
    batch = None if name is None else str(point.settings.get(name, ""))
    return figures(summarize(load(folder.recording(point))), int(batch) if batch and batch.isdecimal() else None)
