"""Profile Keras's own loop: a callback for `fit`."""

import sys
import weakref
from typing import Any

import keras

from tbdprof.hooks.instances import instances_of
from tbdprof.launch.arguments import optional_number
from tbdprof.launch.library_loop import LibraryLoop, leave
from tbdprof.launch.own_loop import Profiler

BATCHES = "batches"
_BACKENDS = ("tensorflow", "torch")
_UNWATCHED = "tbdprof: Keras computes with {} here: set KERAS_BACKEND=tensorflow or torch; the fit goes on unwatched\n"


class Callback(keras.callbacks.Callback):  # type: ignore[misc]
    """Profiles a `fit`; each batch is a step.

        model.fit(x, y, callbacks=[tbdprof.keras.Callback(output="fit.tbd")])

    Args:
        profiler: a running profiler whose `with` encloses the `fit`. Without it the callback makes one from the model
            and `options`, and stops and prints it at the end of the `fit`.
        batch_size: samples per batch; without it throughput is in batches.
        prints: whether to print the report of the callback's own profiler.
        options: options of `tbdprof.profile`.

    If Keras runs several batches at once (`steps_per_execution`), together they are one step. Keras does not notify
    its callbacks when `fit` raises: the callback's own profiler stops once the exception is handled, or when another
    profiler begins. Raise UsageError for arguments of other types, and for options that `tbdprof.profile` lacks.
    """

    def __init__(
        self, profiler: Profiler | None = None, *, batch_size: int | None = None, prints: bool = True, **options: Any
    ) -> None:
        super().__init__()
        self._loop = LibraryLoop(profiler, options, prints=prints)
        self._batch_size = optional_number("batch_size", batch_size, 1)
        self._first = 0

    @property
    def profiler(self) -> Profiler | None:
        """Return the profiler of this `fit`, or of the last one."""
        return self._loop.profiler

    def on_train_begin(self, logs: object = None) -> None:
        """Start the callback's own profiler; a profiler passed in already runs."""
        if not self._loop.is_own:
            return
        backend = keras.config.backend()
        if backend not in _BACKENDS:
            sys.stderr.write(_UNWATCHED.format(backend))
            return
        count = {"unit": BATCHES} if self._batch_size is None else {"batch_size": self._batch_size}
        self._loop.begin(self.model, **count)
        if self.profiler is not None:
            for run in _runs_of(self):
                weakref.finalize(run, leave, self.profiler).atexit = False

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        """Remember the first batch of an execution."""
        self._first = batch

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """End a step of all batches that ran together."""
        self._loop.step(self._units(batch - self._first + 1))

    def on_train_end(self, logs: object = None) -> None:
        """Stop the callback's own profiler and print its report."""
        self._loop.end()

    def _units(self, batches: int) -> float | None:
        """Return a step's samples or batches, or None if a profiler passed in counts steps."""
        if self._batch_size is not None:
            return float(batches * self._batch_size)
        return float(batches) if self._loop.is_own else None


def _runs_of(callback: keras.callbacks.Callback) -> list[Any]:
    """Return Keras's lists of callbacks that hold this one; each `fit` makes such a list and drops it when it ends."""
    lists = instances_of(keras.callbacks.CallbackList)
    return [each for each in lists if any(known is callback for known in each.callbacks)]
