"""A recording that is read from a file, with its results."""

from functools import cached_property
from pathlib import Path

from tbdprof.analysis.summary import summarize
from tbdprof.facts.file import reading
from tbdprof.facts.recording import Recording
from tbdprof.results.summary import Summary


class LoadedRecording(Recording):
    """A recording from a file. `summary` holds all its results."""

    @cached_property
    def summary(self) -> Summary:
        """Return all results of the recording; they are worked out when first asked for."""
        return summarize(self)


def load(path: str | Path, *, salvage: bool = False) -> LoadedRecording:
    """Read a recording; raise RecordingFormatError with one line that says what is wrong with the file.

    With `salvage`, windows that are damaged are left out, and a remark on the damage says which.
    """
    found = reading.load(path, salvage=salvage)
    return LoadedRecording(found.run, found.windows, found.strings, found.missing)
