"""Keras on TensorFlow: `fit` with the layers' default names, or with a `train_step` of the model's own."""

import sys

import keras
import numpy as np
import tensorflow as tf
from word import ITEM, STEPS, dense, write

BATCH, WIDE, HIDDEN, CODE = 8, 24, 40, 10


def classifier() -> keras.Model:
    """Return a model whose layers are named by Keras."""
    layers = [keras.Input((WIDE,)), keras.layers.Dense(HIDDEN, activation="relu"), keras.layers.Dense(CODE)]
    model = keras.Sequential(layers)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class Autoencoder(keras.Model):
    """An encoder and a decoder, trained by a step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.Sequential([keras.Input((WIDE,)), keras.layers.Dense(CODE)])
        self.decoder = keras.Sequential([keras.Input((CODE,)), keras.layers.Dense(WIDE)])

    def train_step(self, data: tf.Tensor) -> dict[str, tf.Tensor]:
        """Update on one batch."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.decoder(self.encoder(data)) - data))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return {"loss": loss}


keras.utils.set_random_seed(0)
samples = np.random.standard_normal((STEPS * BATCH, WIDE)).astype("float32")
if "train_step" in sys.argv:
    model = Autoencoder()
    model.compile(keras.optimizers.Adam())
    model.fit(samples, batch_size=BATCH, verbose=0)
    flops = dense(BATCH, WIDE, CODE, products=2) + dense(BATCH, CODE, WIDE)
else:
    model = classifier()
    model.fit(samples, np.random.randint(0, CODE, STEPS * BATCH), batch_size=BATCH, verbose=0)
    flops = dense(BATCH, WIDE, HIDDEN, products=2) + dense(BATCH, HIDDEN, CODE)

variables = {f"{index}": np.asarray(each) for index, each in enumerate([*model.variables, *model.optimizer.variables])}
trained = sum(ITEM * int(np.prod(each.shape)) for each in model.trainable_variables)
state = sum(np.asarray(each).nbytes for each in model.optimizer.variables)
write(weights=trained, gradients=trained, state=state, flops=flops, numbers=variables)
sys.exit(3)
