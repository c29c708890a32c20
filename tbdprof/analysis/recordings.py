"""A recording that is read from a file, with its results."""

import os
from functools import cached_property
from pathlib import Path

from tbdprof.analysis.summary import summarize
from tbdprof.errors import UsageError
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

    With `salvage`, windows that are damaged are left out, and a remark on the damage says which. Raise UsageError for a
    folder: that of a sweep is for `load_sweep`.
    """
    if os.path.isdir(path):  # noqa: PTH112 - a Path raises OSError for a name that is too long
        raise UsageError(f"{path} is a folder: give a recording, or read a sweep with tbdprof.load_sweep")
    found = reading.load(path, salvage=salvage)
    return LoadedRecording(found.run, found.windows, found.strings, found.missing)
