"""Profile the `Estimator` of MXNet's Gluon: an event handler for `fit`."""

from typing import Any

from mxnet.gluon.contrib.estimator import BatchEnd, Estimator, TrainBegin, TrainEnd

from tbdprof.launch.library_loop import LibraryLoop
from tbdprof.launch.own_loop import Profiler


class TbdprofHandler(TrainBegin, BatchEnd, TrainEnd):  # type: ignore[misc]
    """Profiles each `fit` of an `Estimator`; each batch is a step.

        estimator.fit(batches, epochs=2, event_handlers=[TbdprofHandler(output="fit.tbd")])

    Args:
        profiler: a running profiler whose `with` encloses the `fit`. Without it the handler makes one from the network,
            its trainer and `options`, and stops and prints it at the end of the `fit`.
        prints: whether to print the report of the handler's own profiler.
        options: options of `tbdprof.profile`.

    The `Estimator` does not notify its handlers of an exception: the handler's own profiler then stops when another one
    begins, or at the end of the process. Raise UsageError for a profiler of another type, and for options that
    `tbdprof.profile` lacks.
    """

    priority = -1500  # after the update of the weights (-2000), before metrics and validation (-1000)

    def __init__(self, profiler: Profiler | None = None, *, prints: bool = True, **options: Any) -> None:
        self._loop = LibraryLoop(profiler, options, prints=prints)

    @property
    def profiler(self) -> Profiler | None:
        """Return the profiler of this `fit`, or of the last one."""
        return self._loop.profiler

    def train_begin(self, estimator: Estimator, *_: object, **__: object) -> None:
        """Start the handler's own profiler."""
        self._loop.begin(estimator.net, estimator.trainer)

    def batch_end(self, estimator: Estimator, *_: object, **__: object) -> None:
        """End a step."""
        self._loop.step()

    def train_end(self, estimator: Estimator, *_: object, **__: object) -> None:
        """Stop the handler's own profiler and print its report."""
        self._loop.end()
