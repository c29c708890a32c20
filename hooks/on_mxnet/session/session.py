"""The operators that ran, with their times: one session of MXNet's own profiler.

The profiler tells times in whole microseconds of the wall clock. While it aggregates too, operators are not run in
bulk; that is the one switch of this kind that works at run time. It writes to a file only, which lies in a folder of
its own until it is read, and each operator twice, of which the pair on the device's side is read.
"""

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import mxnet as mx

from tbdprof.errors import UnavailableError
from tbdprof.hooks.clock import wall_offset_ns
from tbdprof.hooks.on_mxnet.session import layout, profiler
from tbdprof.hooks.on_mxnet.session.engine import SEPARATOR

_RUNNING = 1
_MODE = layout.MEMORY_MODE | 3  # symbolic and imperative
_NAMELESS = "(no name)"  # what draws random numbers asks the engine without one
# The frame of the list of events, of which a file may lack the beginning, the end or both: MXNet writes the one once a
# process, wherever it first writes to, and the other where no statistics were asked for.
_FRAME = re.compile(r'^\s*\{\s*"traceEvents":\s*\[|\],\s*"displayTimeUnit":[^\]]*\}\s*$')
_UNREADABLE = "the file MXNet's profiler wrote could not be read"


class Ran(NamedTuple):
    """An operator that ran; `number` is that of its request to the engine, -1 where it has none."""

    number: int
    name: str
    thread: int
    start_ns: int
    end_ns: int


class Session:
    """Has MXNet's profiler note operators until it is ended."""

    def __init__(self, put_back: Callable[[], None]) -> None:
        """Take what sets the profiler up again as it was; raises UnavailableError where the script runs it."""
        self._put_back = put_back
        self._begin_ns, self._offset_ns = time.monotonic_ns(), wall_offset_ns()
        self._folder = tempfile.TemporaryDirectory(prefix="tbdprof-")
        self._file = Path(self._folder.name, "operators.json")
        try:
            mx.profiler.set_config(
                profile_memory=True,  # else MXNet's memory counter would miss what happens now
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
        """Put the profiler back as it was; return what ran."""
        try:
            if layout.profiler_state() != (_RUNNING, _MODE):
                raise UnavailableError(profiler.IN_USE)
            mx.profiler.pause()
            mx.profiler.dump(finished=False)
            ran = _pairs(read_events(self._file.read_text()), self._offset_ns)
            # The script may have run the profiler before, and not have had it write.
            return [each for each in ran if each.start_ns >= self._begin_ns]
        except (ValueError, KeyError, OSError) as error:
            raise UnavailableError(_UNREADABLE) from error
        finally:
            self._leave()

    def _leave(self) -> None:
        mx.profiler.dumps(reset=True)
        self._folder.cleanup()
        self._put_back()


def read_events(text: str) -> list[Mapping[str, object]]:
    """Return the events in a file of MXNet's profiler; all but the first of a process begin with a comma."""
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
    """Return an operator's own name, and the number of its request to the engine, -1: it has none."""
    known, told, number = name.rpartition(SEPARATOR)
    return (known, int(number)) if told and number.isdecimal() else (name, -1)
