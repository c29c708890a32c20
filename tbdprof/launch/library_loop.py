"""A training loop that a library runs, profiled by what the library reports to a callback."""

import atexit
import inspect
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tbdprof.errors import TbdprofError, UsageError, visible
from tbdprof.launch.arguments import optional_path
from tbdprof.launch.own_loop import Profiler, profile, unattended
from tbdprof.loop import ending
from tbdprof.loop.profiler import LoopProfiler, Units


class LibraryLoop:
    """What the callbacks for all libraries share: a profiler for each loop that begins, or one that was given.

    Nothing here raises into the loop, but for `begin` of the first one. Where tbdprof refuses to go on, one line on
    stderr says so, and the training goes on unwatched.
    """

    def __init__(self, profiler: Profiler | None, options: Mapping[str, Any], *, prints: bool) -> None:
        """Take a profiler whose `with` encloses the loops, or None and the options of `tbdprof.profile`.

        Raise UsageError for a profiler of another type, and for options that `tbdprof.profile` lacks.
        """
        if profiler is not None and not isinstance(profiler, LoopProfiler):
            raise UsageError(f"profiler is a {type(profiler).__name__}: give what tbdprof.profile returned, or nothing")
        unknown = options.keys() - inspect.signature(profile).parameters.keys()
        if unknown:
            raise UsageError(f"tbdprof.profile has no option {', '.join(sorted(unknown))}: see help(tbdprof.profile)")
        self.profiler = profiler  # of the loop that runs, or of the last one
        self.is_own = profiler is None
        self._options = options
        self._prints = prints
        self._runs = not self.is_own
        self._begun = 0

    def begin(self, models: object = (), optimizers: object = (), **facts: object) -> None:
        """Make a profiler and start it, unless one was given. `facts` are options that the user's replace.

        The second loop and later ones record into files of their own: `fit-2.tbd` for `fit.tbd`. Raise UsageError for
        the first loop if `tbdprof.profile` does.
        """
        if not self.is_own:
            return
        self._begun += 1
        self.profiler, self._runs = None, False
        try:
            made = profile(models, optimizers, **{**facts, **self._options, **self._output()})
            made.start()
        except TbdprofError as error:
            if self._begun == 1 and isinstance(error, UsageError):
                raise
            _say_unwatched(error)
            return
        self.profiler, self._runs = made, True
        unattended.add(made)
        atexit.register(made.stop)

    def step(self, units: Units = None) -> None:
        """End a step."""
        if self.profiler is None or not self._runs:
            return
        try:
            self.profiler.step(units)
        except TbdprofError as error:
            _say_unwatched(error)
            self._runs = False
            self.profiler.stop(str(error))

    def end(self, failure: BaseException | None = None) -> None:
        """Stop the profiler that `begin` made, and print its report; after a failure of the loop it is not printed."""
        if not self.is_own or self.profiler is None or not self._runs:
            return
        self._runs = False
        leave(self.profiler, failure)
        if self._prints and failure is None and not self.profiler.recording.run.rank:
            with suppress(OSError, ValueError):  # the output is closed, or lacks a character: the program goes on
                print(self.profiler)  # noqa: T201 - what it is for

    def _output(self) -> dict[str, Path]:
        path = optional_path("output", self._options.get("output"))
        if path is None or self._begun == 1:
            return {}
        return {"output": path.with_name(f"{path.stem}-{self._begun}{path.suffix}")}


def leave(profiler: Profiler, failure: BaseException | None = None) -> None:
    """Stop a profiler that a loop of a library has; nothing happens if it is stopped already."""
    unattended.discard(profiler)
    atexit.unregister(profiler.stop)
    profiler.stop("" if failure is None else ending.reason(failure), failure)


def _say_unwatched(error: TbdprofError) -> None:
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"tbdprof: {visible(str(error))}; the training goes on unwatched\n")
