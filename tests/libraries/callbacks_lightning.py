"""What the callback for Lightning records of real `fit`s, beside the same training as a plain loop; prints JSON.

Every training begins from the same seed. `plain` has no callback: its weights are those that the others must end with.
"""

import gc
import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import known_peaks
import lightning
import torch
from lightning.pytorch.utilities.warnings import PossibleUserWarning
from told import digest, told
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tbdprof
from tbdprof.integrations.lightning import TbdprofCallback

BATCH, WIDE, HIDDEN, CLASSES = 8, 24, 40, 10
STEPS, OPTIONS = 20, {"warmup": 2, "steps": 2, "prints": False}
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
STOP = 12  # the batch at which a training is interrupted
Batch = tuple[torch.Tensor, torch.Tensor]


class Classifier(lightning.LightningModule):
    """Two dense layers; `stop` is what is raised in the middle."""

    stop: BaseException | None = None

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(WIDE, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def loss(self, batch: Batch) -> torch.Tensor:
        """Return the loss of a batch."""
        return nn.functional.cross_entropy(self.head(self.hidden(batch[0]).tanh()), batch[1])

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        if self.stop is not None and index == STOP:
            raise self.stop
        return self.loss(batch)

    def validation_step(self, batch: Batch, index: int) -> None:
        """Compute what a validation does."""
        self.loss(batch)

    def configure_optimizers(self) -> Any:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), 1e-3)


class Alternating(Classifier):
    """The same with an optimizer for each layer, stepped by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Batch, index: int) -> None:
        """Update both layers."""
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()

    def configure_optimizers(self) -> Sequence[torch.optim.Optimizer]:
        """Return an optimizer for each layer."""
        return [torch.optim.SGD(each.parameters(), 0.1) for each in (self.hidden, self.head)]


def batches(count: int = STEPS) -> DataLoader:
    """Return a loader of random batches."""
    data = TensorDataset(torch.randn(count * BATCH, WIDE), torch.randint(CLASSES, (count * BATCH,)))
    return DataLoader(data, BATCH)


@contextmanager
def seeded(kind: type[Classifier] = Classifier) -> Iterator[Classifier]:
    """Make a model, always the same; nothing of an earlier training is left in memory."""
    gc.collect()
    lightning.seed_everything(0, verbose=False)
    yield kind()


def fit(
    callback: TbdprofCallback | None,
    kind: type[Classifier] = Classifier,
    *,
    count: int = STEPS,
    validates: bool = False,
    stop: BaseException | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Fit a model, and return what its recording says and the digest of its weights."""
    with seeded(kind) as model:
        model.stop = stop
        called = [] if callback is None else [callback]
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            callbacks=called,
            **{**QUIET, "num_sanity_val_steps": 2, **options},
        )
        raised = ""
        try:
            trainer.fit(model, batches(count), batches(3) if validates else None)
        except (ValueError, SystemExit) as error:
            raised = type(error).__name__
    return {"weights": digest(model), "raised": raised} | told(None if callback is None else callback.profiler)


def plain_loop(accumulated: int = 1) -> dict[str, Any]:
    """Train as Lightning does, in a loop of one's own with tbdprof around it."""
    with seeded() as model:
        optimizer = model.configure_optimizers()
        with tbdprof.profile(model, optimizer, warmup=2, steps=2) as profiler:
            for index, batch in enumerate(batches(STEPS * accumulated)):
                loss = model.loss(batch) / accumulated
                if index % accumulated == 0:
                    optimizer.zero_grad()
                loss.backward()
                if (index + 1) % accumulated == 0:
                    optimizer.step()
                    profiler.step()
    return {"weights": digest(model)} | told(profiler)


def twice() -> list[dict[str, Any]]:
    """Fit twice with one callback."""
    callback = TbdprofCallback(output="twice.tbd", **OPTIONS)
    return [fit(callback), fit(callback)]


def main() -> None:
    """Train in every way."""
    warnings.simplefilter("ignore", PossibleUserWarning)
    known_peaks.use()
    given = tbdprof.profile(framework="torch", warmup=2, steps=2)
    found = {
        "plain": fit(None),
        "callback": fit(TbdprofCallback(output="lightning.tbd", **OPTIONS)),
        "plain loop": plain_loop(),
        "accumulates plain": fit(None, count=2 * STEPS, accumulate_grad_batches=2),
        "accumulates": fit(TbdprofCallback(**OPTIONS), count=2 * STEPS, accumulate_grad_batches=2),
        "accumulates in a plain loop": plain_loop(2),
        "two optimizers plain": fit(None, Alternating),
        "two optimizers": fit(TbdprofCallback(**OPTIONS), Alternating),
        "validates plain": fit(None, validates=True, val_check_interval=5),
        "validates": fit(TbdprofCallback(**OPTIONS), validates=True, val_check_interval=5),
        "raises": fit(TbdprofCallback(**OPTIONS), stop=ValueError("planted")),
        "is interrupted": fit(TbdprofCallback(output="interrupted.tbd", **OPTIONS), stop=KeyboardInterrupt()),
        "is short": fit(TbdprofCallback(prints=False), max_steps=3),
        "twice": twice(),
    }
    with given:
        found["given"] = fit(TbdprofCallback(given))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
