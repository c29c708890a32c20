"""WGAN-GP in TensorFlow's Keras: the critic's step and the generator's step are one traced function each.

Channels are last, also where activations are flattened. So the rows of the dense layers' weights are in another order
than in torch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow import keras

from tbdprof.suite.data.inputs import Pictures, feed
from tbdprof.suite.initial import Weights
from tbdprof.suite.on_tensorflow import device_of, dtype_of, policy_of, traced
from tbdprof.suite.wgan import ADAM_EPSILON, BETAS, PENALTY, initial, learning_rate
from tbdprof.suite.wgan.architecture import NOISE, SIDE, START
from tbdprof.suite.wgan.on_tensorflow_networks import Critic, Generator
from tbdprof.suite.wgan.pictures import batches
from tbdprof.suite.workload import Config, Spec

Step = Callable[..., tf.Tensor]


@dataclass(frozen=True, slots=True)
class Workload:
    """WGAN-GP and the pictures it is trained on."""

    spec: Spec
    config: Config
    model: list[keras.Model]  # generator, critic
    optimizer: list[keras.optimizers.Adam]  # of each
    inputs: tuple[tf.Tensor, ...]  # the pictures if one batch is reused, empty otherwise
    batches: Iterator[tf.Tensor]
    random: tf.random.Generator
    critic_step: Step  # real, noise (batch, 128), coefficients (batch, 1, 1, 1): trains the critic, returns its loss
    generator_step: Step  # noise: trains the generator, returns its loss

    def step(self) -> float:
        """Train the critic on the next batches, then the generator once; return how many real pictures were used."""
        of_the_step = [next(self.batches) for _ in range(int(self.config.options["critic_steps"]))]
        for real in of_the_step:
            self.critic_step(real, self.noise(), self.coefficients())
        self.generator_step(self.noise())
        return self.config.batch_size * len(of_the_step)

    def noise(self) -> tf.Tensor:
        """Return standard normal noise for a batch."""
        with tf.device(device_of(self.config)):
            return self.random.normal((self.config.batch_size, NOISE), dtype=dtype_of(self.config))

    def coefficients(self) -> tf.Tensor:
        """Return a uniform number from 0 to 1 for each picture of a batch."""
        with tf.device(device_of(self.config)):
            return self.random.uniform((self.config.batch_size, 1, 1, 1), dtype=dtype_of(self.config))

    def train(self, batch: Pictures) -> float:
        """Train the critic on each `batch_size` pictures, then the generator once; return the critic's last loss."""
        pictures, size = channels_last(batch.images, self.config), self.config.batch_size
        for start in range(0, len(pictures), size):
            loss = self.critic_step(pictures[start : start + size], self.noise(), self.coefficients())
        self.generator_step(self.noise())
        return float(loss)

    def predict(self, inputs: Pictures | NDArray[np.float32]) -> NDArray[Any]:
        """Return the critic's scores of pictures, or the pictures generated from noise of shape (any number, 128)."""
        generator, critic = self.model
        dtype = dtype_of(self.config)
        if isinstance(inputs, Pictures):
            answer = critic(channels_last(inputs.images, self.config))
        else:
            answer = tf.transpose(generator(tf.cast(inputs, dtype)), (0, 3, 1, 2))
        answered: NDArray[Any] = tf.cast(answer, dtype).numpy()
        return answered


def build(spec: Spec, config: Config) -> Workload:
    """Return WGAN-GP with its initial weights, its optimizers and its batches on the device."""
    device, width, policy = device_of(config), int(config.options["width"]), policy_of(config)
    with tf.device(device):
        generator, critic = Generator(width, policy), Critic(width, policy)
        generator(keras.Input((NOISE,)))  # creates the weights without computing anything
        critic(keras.Input((SIDE, SIDE, 3)))
        initialize(generator, initial.generator(config.seed, width))
        initialize(critic, initial.critic(config.seed, width))
        optimizer = [adam(generator, width), adam(critic, width)]
        random = tf.random.Generator.from_seed(config.seed)
    synthetic = config.data is None
    feeding = feed(batches(config), lambda batch: channels_last(batch.images, config), kept=synthetic)
    kept = (next(feeding),) if synthetic else ()
    train_critic = critic_step(generator, critic, optimizer[1], config)
    train_generator = generator_step(generator, critic, optimizer[0], config)
    model = [generator, critic]
    return Workload(spec, config, model, optimizer, kept, feeding, random, train_critic, train_generator)


def adam(network: keras.Model, width: int) -> keras.optimizers.Adam:
    """Return the optimizer of a network with this width; its moments exist already."""
    optimizer = keras.optimizers.Adam(learning_rate(width), *BETAS, ADAM_EPSILON)
    optimizer.build(network.trainable_variables)
    return optimizer


def critic_step(generator: Generator, critic: Critic, optimizer: keras.optimizers.Adam, config: Config) -> Step:
    """Return the function that trains the critic once and returns its loss before the update."""

    @traced(config)
    def step(real: tf.Tensor, noise: tf.Tensor, coefficients: tf.Tensor) -> tf.Tensor:
        with tf.device(device_of(config)):
            made = tf.cast(generator(noise), real.dtype)
            with tf.GradientTape() as tape:
                loss = critic_loss(critic, real, made, coefficients)
            optimizer.apply(tape.gradient(loss, critic.trainable_variables), critic.trainable_variables)
            return loss

    return step


def generator_step(generator: Generator, critic: Critic, optimizer: keras.optimizers.Adam, config: Config) -> Step:
    """Return the function that trains the generator once and returns its loss before the update."""

    @traced(config)
    def step(noise: tf.Tensor) -> tf.Tensor:
        with tf.device(device_of(config)):
            with tf.GradientTape() as tape:
                loss = generator_loss(generator, critic, noise)
            optimizer.apply(tape.gradient(loss, generator.trainable_variables), generator.trainable_variables)
            return loss

    return step


def critic_loss(critic: Critic, real: tf.Tensor, made: tf.Tensor, coefficients: tf.Tensor) -> tf.Tensor:
    """Return the critic's loss: mean score of generated minus that of real pictures, plus the weighted penalty."""
    interpolates = real + coefficients * (made - real)
    distance = _mean(critic(real)) - _mean(critic(made))
    return PENALTY * penalty(critic, interpolates) - distance


def generator_loss(generator: Generator, critic: Critic, noise: tf.Tensor) -> tf.Tensor:
    """Return the generator's loss: the negative mean of the critic's scores of generated pictures."""
    return -_mean(critic(generator(noise)))


def penalty(critic: Critic, pictures: tf.Tensor) -> tf.Tensor:
    """Return the gradient penalty: the mean of (n - 1)².

    n is the norm of the gradient of a picture's score with respect to the picture.
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(pictures)
        scores = critic(pictures)
    gradients = tape.gradient(scores, pictures)
    lengths = tf.sqrt(tf.reduce_sum(tf.square(gradients), (1, 2, 3)))
    return tf.reduce_mean(tf.square(lengths - 1))


def initialize(network: keras.Model, weights: Weights) -> None:
    """Set the weights drawn for a network; all other parameters already have their initial values."""
    kernels = {variable.path: variable for variable in network.trainable_variables if variable.path.endswith("/kernel")}
    for name, values in weights:
        layer = name.removesuffix(".weight").replace(".", "/")
        kernels[f"{network.name}/{layer}/kernel"].assign(from_torch(f"{network.name}.{name}", values))


def from_torch(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return a parameter, given its full name, in Keras' order of axes; rows of flattened activations move too."""
    if name == "generator.dense.bias":
        return values.reshape(-1, START**2).T.reshape(-1)
    if name == "generator.dense.weight":
        return values.reshape(-1, START**2, NOISE).transpose(2, 1, 0).reshape(NOISE, -1)
    if name == "critic.dense.weight":
        return values.reshape(-1, START**2).T.reshape(-1, 1)
    return values.transpose(2, 3, 1, 0) if values.ndim == 4 else values


def channels_last(images: NDArray[np.float32], config: Config) -> tf.Tensor:
    """Return pictures as a tensor on the device, channels last."""
    with tf.device(device_of(config)):
        return tf.transpose(tf.cast(images, dtype_of(config)), (0, 2, 3, 1))


def _mean(scores: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.cast(scores, tf.float32) if scores.dtype == tf.bfloat16 else scores)
