"""Profile a Lightning `Trainer`: a callback for `fit`."""

from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:  # the same library, under its older name
    from pytorch_lightning import Callback, LightningModule, Trainer

from tbdprof.launch.library_loop import LibraryLoop
from tbdprof.launch.own_loop import Profiler


class TbdprofCallback(Callback):  # type: ignore[misc]
    """Profiles each `fit` of a `Trainer`; each update of the weights ends a step.

        Trainer(callbacks=[TbdprofCallback(output="fit.tbd")]).fit(model, batches)

    The batches that an update accumulates are one step, and so are the updates of several optimizers in one batch.
    Validation is no step.

    Args:
        profiler: a running profiler whose `with` encloses the `fit`. Without it the callback makes one from the module,
            its optimizers and `options`, and stops and prints it at the end of the `fit`.
        prints: whether to print the report of the callback's own profiler, in the first of several processes.
        options: options of `tbdprof.profile`.

    Raise UsageError for a profiler of another type, and for options that `tbdprof.profile` lacks.
    """

    def __init__(self, profiler: Profiler | None = None, *, prints: bool = True, **options: Any) -> None:
        super().__init__()
        self._loop = LibraryLoop(profiler, options, prints=prints)
        self._updates = 0

    @property
    def profiler(self) -> Profiler | None:
        """Return the profiler of this `fit`, or of the last one."""
        return self._loop.profiler

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the callback's own profiler."""
        self._updates = trainer.global_step
        self._loop.begin(pl_module, trainer.optimizers)

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        """End a step, if the batch ended with an update."""
        if trainer.global_step != self._updates:
            self._updates = trainer.global_step
            self._loop.step()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the callback's own profiler and print its report."""
        self._loop.end()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stop the callback's own profiler; what it recorded says what ended the `fit`."""
        self._loop.end(exception)
