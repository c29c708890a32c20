"""The work of `tbdprof report`, of the commands that print a part of a report, and of `tbdprof export`."""

from collections.abc import Sequence
from pathlib import Path

from tbdprof.analysis.memory.breakdown import measure
from tbdprof.analysis.summary import summarize
from tbdprof.cli import several
from tbdprof.cli.opening import opened
from tbdprof.cli.streams import emit
from tbdprof.errors import UsageError
from tbdprof.report import export as exports
from tbdprof.report import json_report, terminal
from tbdprof.report.metrics import openmetrics


def report(files: Sequence[Path], *, full: bool, salvage: bool, as_json: bool, color: bool) -> None:
    """Print the report of a recording, or the comparison of several."""
    paths = several.recordings(files)
    summaries = {path: summarize(opened(path, salvage=salvage)) for path in paths}
    if len(paths) > 1:
        several.refuse_full(full=full)
        emit(several.report(summaries, color=color, as_json=as_json))
        return
    summary = summaries[paths[0]]
    emit(json_report.render(summary) if as_json else terminal.render(summary, color=color, full=full))


def print_part(part: str, file: Path, *, salvage: bool, as_json: bool, color: bool) -> None:
    """Print one part of the report of a recording: "kernels", "layers" or "memory"."""
    summary = summarize(opened(file, salvage=salvage))
    emit(json_report.render(summary, part) if as_json else terminal.render_part(summary, part, color=color))


def export(file: Path, output: Path, form: str, *, force: bool, salvage: bool) -> None:
    """Write a recording in another format; raise UsageError if the target exists, or for `force` without openmetrics.

    With `salvage`, windows that are damaged are left out.
    """
    if force and form != "openmetrics":
        raise UsageError(f"--force is for openmetrics, and not for {form}: choose another name with -o")
    recording = opened(file, salvage=salvage)
    if form == "openmetrics":
        openmetrics.write(summarize(recording), output, force=force)
    elif form == "perfetto":
        memory = measure(recording).value
        exports.write_trace(recording, None if memory is None else memory.timeline, output)
    else:
        exports.write(recording, output, form)
