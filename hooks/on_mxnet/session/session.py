"""Operators that ran, with their times: one session of MXNet's own profiler.

The profiler reports times in whole microseconds of the wall clock. While it also aggregates, MXNet does not run
operators in bulk. No other switch for this works at run time. The profiler writes only to a file, which stays in a
temporary folder until it is read. It writes each operator twice; the pair of events on the device's side is read.
"""

import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import mxnet as mx

from tbdprof.collect.clock import wall_offset_ns
from tbdprof.errors import UnavailableError
from tbdprof.hooks.on_mxnet.session import layout, profiler
from tbdprof.hooks.on_mxnet.session.engine import SEPARATOR

_RUNNING = 1
_MODE = layout.MEMORY_MODE | 3  # symbolic and imperative
_NAMELESS = "(no name)"  # operators that draw random numbers make requests without a name
# The frame around the list of events. A file may lack its beginning, its end or both: MXNet writes the beginning once
# per process, in the first file, and the end only if no statistics were requested.
_FRAME = re.compile(r'^\s*\{\s*"traceEvents":\s*\[|\],\s*"displayTimeUnit":[^\]]*\}\s*$')
_UNREADABLE = "the file MXNet's profiler wrote could not be read"


class Ran(NamedTuple):
    """An operator that ran; `number` is that of its request to the engine, or -1 if it has none."""

    number: int
    name: str
    thread: int
    start_ns: int
    end_ns: int


class Session:
    """Makes MXNet's profiler record operators until it ends."""

    def __init__(self, put_back: Callable[[], None]) -> None:
        """Take a function that restores the profiler's settings; raise UnavailableError if the script runs it."""
        self._put_back = put_back
        self._begin_ns, self._offset_ns = time.monotonic_ns(), wall_offset_ns()
        # Not a TemporaryDirectory: where a script ends within the window, Python would remove that before the window.
        self._folder = tempfile.mkdtemp(prefix="tbdprof-")
        self._file = Path(self._folder, "operators.json")
        try:
            mx.profiler.set_config(
                profile_memory=True,  # otherwise MXNet's memory counter would miss events meanwhile
                profile_symbolic=True,
                profile_imperative=True,
                profile_api=False,
                continuous_dump=False,
                aggregate_stats=True,
                filename=str(self._file),
            )
            mx.profiler.set_state("run")
            mx.profiler.resume()
        except BaseException:
            self._leave()
            raise

    def end(self) -> list[Ran]:
        """Restore the profiler's settings; return what ran."""
        try:
            if layout.profiler_state() != (_RUNNING, _MODE):
                raise UnavailableError(profiler.IN_USE)
            mx.profiler.pause()
            mx.profiler.dump(finished=False)
            ran = _pairs(read_events(self._file.read_text()), self._offset_ns)
            # The script may have run the profiler before without writing its file.
            return [each for each in ran if each.start_ns >= self._begin_ns]
        except (ValueError, KeyError, OSError) as error:
            raise UnavailableError(_UNREADABLE) from error
        finally:
            self._leave()

    def _leave(self) -> None:
        mx.profiler.dumps(reset=True)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._put_back()


def read_events(text: str) -> list[Mapping[str, object]]:
    """Return the events in a file of MXNet's profiler; all but a process's first one begin with a comma."""
    listed = _FRAME.sub("", text).strip(", \n")
    events: list[Mapping[str, object]] = json.loads(f"[{listed}]")
    return events


def _pairs(events: list[Mapping[str, object]], offset_ns: int) -> Iterator[Ran]:
    begun: dict[tuple[object, object], int] = {}
    for event in events:
        kind, name, thread, time_us = event["ph"], event["name"], event.get("tid"), event.get("ts")
        if kind == "B":
            begun[name, thread] = int(time_us)  # type: ignore[call-overload]
        elif kind == "E" and (name, thread) in begun:
            start_us = begun.pop((name, thread))
            known, number = _numbered(str(name))
            yield Ran(
                number,
                known or _NAMELESS,
                layout.signed(int(thread)),  # type: ignore[call-overload]
                start_us * 1000 - offset_ns,
                int(time_us) * 1000 - offset_ns,  # type: ignore[call-overload]
            )


def _numbered(name: str) -> tuple[str, int]:
    """Return an operator's own name, and the number of its request to the engine, or -1 if it has none."""
    known, separator, number = name.rpartition(SEPARATOR)
    return (known, int(number)) if separator and number.isdecimal() else (name, -1)
