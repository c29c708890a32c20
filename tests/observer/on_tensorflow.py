"""Trains a small net of Keras's for 14 steps, observed or not; prints what it left behind as JSON.

python on_tensorflow.py HOW THREADS, HOW being: unobserved, attached, prepared, or attached with a mistake planted in
the memory window (draws, nudges).
"""

import json
import random
import sys
from contextlib import nullcontext
from pathlib import Path

import known_peaks
import numpy as np
from state import digest, generators, methods, process

import tbdprof

HOW, THREADS = sys.argv[1], int(sys.argv[2])
if HOW == "prepared":
    tbdprof.prepare("tensorflow")

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402
from keras import layers  # noqa: E402
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function  # noqa: E402

STEPS = 20
IN_MEMORY = 5  # warm-up 0 and 1, clean 2 and 3, memory 4 to 7, clean 8 and 9


def main() -> None:
    """Train, and print what is left."""
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    random.seed(1)
    np.random.seed(2)
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            layers.Input((16, 16, 3)), layers.Conv2D(8, 3), layers.BatchNormalization(), layers.ReLU(),
            layers.Flatten(), layers.Dropout(0.5, seed=4), layers.Dense(10),
        ]
    )  # fmt: skip
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    step = train_step(model, optimizer)
    observed = HOW != "unobserved"
    if HOW in ("attached", "prepared"):  # what measures the peaks must not be noticed either
        known_peaks.measure_once()
    else:
        known_peaks.use()
    options = {"warmup": 2, "steps": 2, "output": Path("observed.tbd")}
    with tbdprof.profile(model, optimizer, **options) if observed else nullcontext() as prof:
        for number in range(STEPS):
            train(step)
            if prof is not None:
                disturb(number, model, prof)
                prof.step(8)
    print(json.dumps({"left": left(model, optimizer), "windows": windows(prof)}))


def train_step(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> object:
    """Return a function that takes one training step."""

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            scores = model(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    return step


def train(step: object) -> None:
    """Take one step on a batch that draws on every generator."""
    images = tf.random.uniform((8, 16, 16, 3)) * random.uniform(0.5, 1.5)
    images += tf.constant(np.random.standard_normal(images.shape).astype(np.float32))
    step(images, tf.random.uniform((8,), maxval=10, dtype=tf.int32))


def disturb(number: int, model: keras.Model, prof: tbdprof.Profiler) -> None:
    """Do what a profiler must not."""
    if number != IN_MEMORY or HOW in ("attached", "prepared"):
        return
    assert prof.recording.windows[-1].name == "memory"
    if HOW == "draws":
        tf.random.uniform(())
    if HOW == "nudges":
        weight = model.trainable_variables[0]
        values = np.array(weight)
        values.flat[0] = np.nextafter(values.flat[0], np.float32(2))
        weight.assign(values)


def left(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> dict[str, object]:
    """Return what must be the same whether or not the run was observed."""
    return {
        "parameters": digest((each.path, np.array(each).tobytes()) for each in model.trainable_variables),
        "buffers": digest((each.path, np.array(each).tobytes()) for each in model.non_trainable_variables),
        "optimizer": digest((each.path, np.array(each).tobytes()) for each in optimizer.variables),
        "tensorflow generator": digest([("drawn", tf.random.uniform((4,)).numpy().tobytes())]),
        **generators(),
        "methods": methods(tf.GradientTape, keras.Layer, keras.optimizers.Optimizer, Function, tf.Variable),
        "profiler": profiler_is_free(),
        **process(),
    }


def profiler_is_free() -> bool:
    """Return whether a session can be had."""
    tf.profiler.experimental.start("")
    tf.profiler.experimental.stop(save=False)
    return True


def windows(prof: tbdprof.Profiler | None) -> list[list[object]]:
    """Return the windows recorded and how many steps each has."""
    if prof is None:
        return []
    return [[window.name, window.state, len(window.table("step"))] for window in prof.recording.windows]


main()
