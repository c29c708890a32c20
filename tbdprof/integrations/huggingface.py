"""Profile a Hugging Face `Trainer` (transformers, and what is built on it): a callback for `train`."""

from typing import Any

from transformers import TrainerCallback

from tbdprof.launch.library_loop import LibraryLoop
from tbdprof.launch.own_loop import Profiler


class TbdprofCallback(TrainerCallback):  # type: ignore[misc]
    """Profiles each `train` of a `Trainer`; each update of the weights ends a step.

        Trainer(model, arguments, train_dataset=texts, callbacks=[TbdprofCallback(output="train.tbd")]).train()

    The batches that an update accumulates are one step. Evaluation is no step.

    Args:
        profiler: a running profiler whose `with` encloses the training. Without it the callback makes one from the
            model, its optimizer and `options`, and stops and prints it at the end of the training.
        prints: whether to print the report of the callback's own profiler, in the first of several processes.
        options: options of `tbdprof.profile`.

    The `Trainer` does not notify its callbacks of an exception: the callback's own profiler then stops when another one
    begins, or at the end of the process. Raise UsageError for a profiler of another type, and for options that
    `tbdprof.profile` lacks.
    """

    def __init__(self, profiler: Profiler | None = None, *, prints: bool = True, **options: Any) -> None:
        self._loop = LibraryLoop(profiler, options, prints=prints)

    @property
    def profiler(self) -> Profiler | None:
        """Return the profiler of this training, or of the last one."""
        return self._loop.profiler

    def on_train_begin(self, *_: object, model: object = (), optimizer: object = None, **__: object) -> None:
        """Start the callback's own profiler."""
        self._loop.begin(model, optimizer)

    def on_step_end(self, *_: object, **__: object) -> None:
        """End a step: the weights were updated."""
        self._loop.step()

    def on_train_end(self, *_: object, **__: object) -> None:
        """Stop the callback's own profiler and print its report."""
        self._loop.end()
