"""Several recordings at once: the ranks of a run that has several processes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tbdprof.analysis.ranks import compare
from tbdprof.cli.opening import sharing
from tbdprof.errors import UsageError
from tbdprof.report import ranks
from tbdprof.results.summary import Summary


def recordings(files: Sequence[Path]) -> list[Path]:
    """Return each file once; where there is none, those of the ranks that share its name."""
    found = (path for file in files for path in sharing(file) or [file])
    return list(dict.fromkeys(found))


def refuse_full(*, full: bool) -> None:
    """Raise UsageError if a comparison is asked for in full, which it always is."""
    if full:
        raise UsageError("--full is for one recording, and these are several: give one of them")


def report(summaries: Mapping[Path, Summary], *, color: bool, as_json: bool) -> str:
    """Return the report of several recordings, in the order of their ranks."""
    ordered = dict(sorted(summaries.items(), key=lambda item: -1 if (rank := _rank(item[1])) is None else rank))
    compared, names = compare([*ordered.values()]), [str(path) for path in ordered]
    return ranks.render_json(compared, names) if as_json else ranks.render(compared, names, color=color)


def _rank(summary: Summary) -> int | None:
    return summary.recording.run.rank
