"""Training loops in TensorFlow whose steps are taken by several threads; the main thread reports each update."""

import queue
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

import tensorflow as tf
from judges.process import Json, Profile

BATCH, WIDTH, CLASSES, STEPS = 6, 40, 10, 24


def network(hidden: int) -> tf.keras.Model:
    layers = [tf.keras.Input((WIDTH,)), tf.keras.layers.Dense(hidden, "relu"), tf.keras.layers.Dense(CLASSES)]
    return tf.keras.Sequential(layers)


class Trainer(threading.Thread):
    """Trains a network in a function of its own, until it is closed."""

    def __init__(self, hidden: int, updates: "queue.Queue[Exception | None]") -> None:
        super().__init__()
        self.net, self.updates, self.closed = network(hidden), updates, False
        self.optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
        self.optimizer.build(self.net.trainable_variables)
        self.loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.update = tf.function(self._update)

    def _update(self, images: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = self.loss_of(labels, self.net(images, training=True))
        weights = self.net.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    def run(self) -> None:
        try:
            while not self.closed:
                self.update(tf.random.normal((BATCH, WIDTH)), tf.zeros((BATCH,), tf.int32))
                self.updates.put(None)
        except tf.errors.OpError as error:
            self.updates.put(error)


def two_free(profile: Profile) -> Json:
    """Two threads train networks of their own and do not wait for each other."""
    updates: queue.Queue[Exception | None] = queue.Queue(1)
    trainers = [Trainer(hidden, updates) for hidden in (32, 48)]
    for trainer in trainers:
        trainer.start()
    try:
        with lengthened(profile([each.net for each in trainers], [each.optimizer for each in trainers])) as prof:
            while prof.active:
                failure = updates.get(timeout=60)
                if failure is not None:
                    raise failure
                prof.step(BATCH)
    finally:
        for trainer in trainers:
            trainer.closed = True
        while any(trainer.is_alive() for trainer in trainers):
            with suppress(queue.Empty):
                updates.get(timeout=0.01)
    weights = [weight for each in trainers for weight in each.net.trainable_variables]
    return {"parameters": [list(weight.shape) for weight in weights], "buffer_bytes": 0}


def lengthened(profiler: Any) -> Any:
    """Return a profiler whose windows of memory and kernels last for several updates by each thread."""
    joining = profiler._joining

    def longer(*arguments: object) -> tuple[object, object]:
        plan, instruments = joining(*arguments)
        return replace(plan, memory_steps=STEPS, kernel_steps=STEPS), instruments

    profiler._joining = longer
    return profiler
