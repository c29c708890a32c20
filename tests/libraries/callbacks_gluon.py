"""What the event handler for Gluon's `Estimator` records, beside the same training as a plain loop; prints JSON."""

import gc
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import known_peaks
import numpy as np
from told import digest_of, told

import tbdprof

vars(np).setdefault("bool", bool)  # MXNet reads it
import mxnet as mx  # noqa: E402
from mxnet import autograd, gluon  # noqa: E402
from mxnet.gluon.contrib.estimator import BatchEnd, Estimator  # noqa: E402

from tbdprof.integrations.gluon import TbdprofHandler  # noqa: E402

BATCH, WIDE, HIDDEN, CLASSES = 8, 24, 40, 10
STEPS, OPTIONS = 20, {"warmup": 2, "steps": 2, "prints": False}
STOP = 12


class Raising(BatchEnd):
    """Raises in the middle of a training."""

    def __init__(self) -> None:
        self.batches = 0

    def batch_end(self, estimator: Estimator, *_: object, **__: object) -> None:
        """Raise at one of the batches."""
        self.batches += 1
        if self.batches == STOP:
            raise ValueError("planted")


@contextmanager
def seeded() -> Iterator[tuple[Any, Any, Any]]:
    """Make a network, its trainer and a loader, always the same; nothing of an earlier training is left in memory."""
    gc.collect()
    mx.random.seed(0)
    network = gluon.nn.HybridSequential()
    network.add(gluon.nn.Dense(HIDDEN, activation="tanh", in_units=WIDE), gluon.nn.Dense(CLASSES, in_units=HIDDEN))
    network.initialize(mx.init.Xavier())
    images = mx.nd.random.normal(shape=(STEPS * BATCH, WIDE))
    labels = mx.nd.arange(STEPS * BATCH) % CLASSES
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(images, labels), BATCH)
    yield network, gluon.Trainer(network.collect_params(), "adam", {"learning_rate": 1e-3}), loader


def fit(*handlers: Any, validates: bool = False) -> dict[str, Any]:
    """Fit a network, and return what the first handler's recording says and the digest of the weights."""
    with seeded() as (network, trainer, loader):
        estimator = Estimator(network, gluon.loss.SoftmaxCrossEntropyLoss(), trainer=trainer)
        estimator.logger.setLevel(logging.ERROR)
        raised = ""
        try:
            estimator.fit(loader, loader if validates else None, epochs=1, event_handlers=[*handlers])
        except ValueError as error:
            raised = str(error)
    ours = [each.profiler for each in handlers if isinstance(each, TbdprofHandler)]
    return {"weights": weights(network), "raised": raised} | told(ours[0] if ours else None)


def plain_loop() -> dict[str, Any]:
    """Train the same network in a loop of one's own, with tbdprof around it; it holds what the `Estimator` holds."""
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    with seeded() as (network, trainer, loader), tbdprof.profile(network, trainer, warmup=2, steps=2) as profiler:
        for batch in loader:
            images, labels = (gluon.utils.split_and_load(each, [mx.cpu()]) for each in batch)
            with autograd.record():
                outputs = [network(each) for each in images]
                losses = [loss(*each) for each in zip(outputs, labels, strict=True)]
            for each in losses:
                each.backward()
            trainer.step(BATCH)
            profiler.step()
    return {"weights": weights(network)} | told(profiler)


def weights(network: Any) -> str:
    """Return a digest of a network's weights."""
    values = [each.data().asnumpy() for each in network.collect_params().values()]
    return digest_of({str(place): each for place, each in enumerate(values)})


def main() -> None:
    """Train in every way."""
    warnings.simplefilter("ignore")
    known_peaks.use()
    raising, twice = TbdprofHandler(**OPTIONS), TbdprofHandler(output="gluon.tbd", **OPTIONS)
    found = {
        "plain": fit(),
        "callback": fit(TbdprofHandler(**OPTIONS)),
        "plain loop": plain_loop(),
        "validates": fit(TbdprofHandler(**OPTIONS), validates=True),
        "raises": fit(raising, Raising()),
        "twice": [fit(twice), fit(twice)],
    }
    assert raising.profiler is not None
    found["left"] = {"active": raising.profiler.active, "ended_by": raising.profiler.recording.run.ended_by}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
