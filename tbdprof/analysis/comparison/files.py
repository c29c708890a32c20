"""Compare what a program has at hand: files, recordings or summaries."""

from collections.abc import Sequence
from pathlib import Path

from tbdprof.analysis.comparison.facts import Run
from tbdprof.analysis.comparison.sides import compare_runs
from tbdprof.analysis.recordings import load
from tbdprof.analysis.summary import summarize
from tbdprof.errors import UsageError
from tbdprof.facts.recording import Recording
from tbdprof.results.compare import Comparison
from tbdprof.results.summary import Summary

Given = str | Path | Recording | Summary


def compare(baseline: Given | Sequence[Given], *others: Given | Sequence[Given], anyway: bool = False) -> Comparison:
    """Compare recordings, each with the first one; a list holds repeats of the same thing, which are pooled.

    A recording is a file, what `load` returned, or its summary. Raise UsageError if repeats are unlike or the models
    differ, unless `anyway`; raise RecordingFormatError for a file that cannot be read.
    """
    given = [[*each] if isinstance(each, list | tuple) else [each] for each in (baseline, *others)]
    if not all(given):
        raise UsageError("a side has no recording: give one or several")
    return compare_runs([[_run(each) for each in side] for side in given], anyway=anyway)  # type: ignore[arg-type]


def _run(given: Given) -> Run:
    if isinstance(given, str | Path):
        return Run(str(given), load(given).summary)
    if isinstance(given, Recording):
        given = summarize(given)
    if isinstance(given, Summary):
        return Run(given.recording.run.model, given)
    raise UsageError(
        f"{type(given).__name__} cannot be compared: give a file, a recording, a summary, or a list of them"
    )
