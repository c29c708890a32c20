"""WGAN-GP in MXNet's Gluon; the critic and the gradient of its scores are in `on_mxnet_critic`."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn
from numpy.typing import NDArray

from tbdprof.suite.data.inputs import Pictures, feed
from tbdprof.suite.initial import Weights
from tbdprof.suite.on_mxnet import check_precision, context_of, dtype_of, hybridize
from tbdprof.suite.wgan import ADAM_EPSILON, BETAS, NORM_EPSILON, PENALTY, initial, learning_rate
from tbdprof.suite.wgan.architecture import NOISE, START, channels
from tbdprof.suite.wgan.on_mxnet_critic import Critic, Penalty
from tbdprof.suite.wgan.pictures import batches
from tbdprof.suite.workload import Config, Spec


class UpBlock(nn.HybridBlock):  # type: ignore[misc]
    """A residual block that doubles height and width before the first of two 3×3 convolutions, and in its shortcut."""

    def __init__(self, inputs: int, outputs: int, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.norm1 = batch_norm(inputs)
            self.conv1 = nn.Conv2D(outputs, 3, padding=1, use_bias=False, in_channels=inputs)
            self.norm2 = batch_norm(outputs)
            self.conv2 = nn.Conv2D(outputs, 3, padding=1, in_channels=outputs)
            self.shortcut = nn.Conv2D(outputs, 1, in_channels=inputs)
            self.relu = nn.Activation("relu")

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        """Return the block's output."""
        shortcut = self.shortcut(doubled(F, x))
        x = self.conv1(doubled(F, self.relu(self.norm1(x))))
        return self.conv2(self.relu(self.norm2(x))) + shortcut


class Generator(nn.HybridBlock):  # type: ignore[misc]
    """Turns noise (batch, 128) into pictures (batch, 3, 64, 64)."""

    def __init__(self, width: int, **names: Any) -> None:
        super().__init__(**names)
        first, *_, last = deepest_first = channels(width)[::-1]
        with self.name_scope():
            self.dense = nn.Dense(first * START**2, in_units=NOISE)
            for number, (inputs, outputs) in enumerate(pairwise(deepest_first), 1):
                setattr(self, f"block{number}", UpBlock(inputs, outputs))
            self.norm = batch_norm(last)
            self.relu = nn.Activation("relu")
            self.conv = nn.Conv2D(3, 3, padding=1, in_channels=last)

    def hybrid_forward(self, F: Any, noise: Any) -> Any:  # noqa: N803
        """Return pictures, from -1 to 1."""
        x = F.reshape(self.dense(noise), (0, -1, START, START))
        x = self.block4(self.block3(self.block2(self.block1(x))))
        return F.tanh(self.conv(self.relu(self.norm(x))))


def batch_norm(channels: int) -> nn.BatchNorm:
    """Return a batch normalization; MXNet's keeps running statistics, but they are never used here."""
    return nn.BatchNorm(epsilon=NORM_EPSILON, in_channels=channels)


def doubled(F: Any, x: Any) -> Any:  # noqa: N803
    """Return activations of twice the height and width, with each value four times."""
    return F.UpSampling(x, scale=2, sample_type="nearest")


@dataclass(frozen=True, slots=True)
class Workload:
    """WGAN-GP and the pictures it is trained on."""

    spec: Spec
    config: Config
    model: list[nn.HybridBlock]  # generator, critic
    optimizer: list[gluon.Trainer]  # of each
    inputs: tuple[mx.nd.NDArray, ...]  # the pictures if one batch is reused, empty otherwise
    batches: Iterator[mx.nd.NDArray]
    penalty: Penalty

    def step(self) -> float:
        """Train the critic on the next batches, then the generator once; return how many real pictures were used."""
        of_the_step = [next(self.batches) for _ in range(int(self.config.options["critic_steps"]))]
        for real in of_the_step:
            self.critic_step(real, self.noise(), self.coefficients())
        self.generator_step(self.noise())
        return self.config.batch_size * len(of_the_step)

    def critic_step(self, real: mx.nd.NDArray, noise: mx.nd.NDArray, coefficients: mx.nd.NDArray) -> mx.nd.NDArray:
        """Train the critic once and return its loss before the update.

        `noise` is (batch, 128). `coefficients`, (batch, 1, 1, 1), mix real and generated pictures for the penalty.
        """
        with autograd.record():
            loss = self.critic_loss(real, noise, coefficients)
        loss.backward()
        self.optimizer[1].step(1)  # the loss is a mean already
        return loss

    def generator_step(self, noise: mx.nd.NDArray) -> mx.nd.NDArray:
        """Train the generator once; return its loss before the update.

        MXNet also computes the gradients of the critic's weights; the critic's next step overwrites them.
        """
        with autograd.record():
            loss = self.generator_loss(noise)
        loss.backward()
        self.optimizer[0].step(1)
        return loss

    def critic_loss(self, real: mx.nd.NDArray, noise: mx.nd.NDArray, coefficients: mx.nd.NDArray) -> mx.nd.NDArray:
        """Return the critic's loss: mean score of generated minus that of real pictures, plus the weighted penalty."""
        generator, critic = self.model
        with autograd.pause(train_mode=True):
            made = generator(noise)
            interpolates = real + coefficients * (made - real)
        return critic(made).mean() - critic(real).mean() + PENALTY * self.penalty(interpolates)

    def generator_loss(self, noise: mx.nd.NDArray) -> mx.nd.NDArray:
        """Return the generator's loss: the negative mean of the critic's scores of generated pictures."""
        generator, critic = self.model
        return -critic(generator(noise)).mean()

    def noise(self) -> mx.nd.NDArray:
        """Return standard normal noise for a batch."""
        return mx.nd.random.normal(shape=(self.config.batch_size, NOISE), **placement(self.config))

    def coefficients(self) -> mx.nd.NDArray:
        """Return a uniform number from 0 to 1 for each picture of a batch."""
        return mx.nd.random.uniform(shape=(self.config.batch_size, 1, 1, 1), **placement(self.config))

    def train(self, batch: Pictures) -> float:
        """Train the critic on each `batch_size` pictures, then the generator once; return the critic's last loss."""
        pictures, size = on_device(batch.images, self.config), self.config.batch_size
        for start in range(0, len(pictures), size):
            loss = self.critic_step(pictures[start : start + size], self.noise(), self.coefficients())
        self.generator_step(self.noise())
        return float(loss.asscalar())

    def predict(self, inputs: Pictures | NDArray[np.float32]) -> NDArray[Any]:
        """Return the critic's scores of pictures, or the pictures generated from noise of shape (any number, 128)."""
        generator, critic = self.model
        if isinstance(inputs, Pictures):
            scores: NDArray[Any] = critic(on_device(inputs.images, self.config)).asnumpy()
            return scores
        with autograd.train_mode():  # by the statistics of the batch at hand
            made: NDArray[Any] = generator(on_device(inputs, self.config)).asnumpy()
        return made


def build(spec: Spec, config: Config) -> Workload:
    """Return WGAN-GP with its initial weights, its optimizers and its batches on the device."""
    check_precision(spec, config)
    width = int(config.options["width"])
    generator, critic = Generator(width), Critic(width)
    initialize(generator, initial.generator(config.seed, width), config)
    initialize(critic, initial.critic(config.seed, width), config)
    penalty = Penalty(critic)
    hybridize(penalty, config)
    hybridize(critic, config)
    hybridize(generator, config)
    mx.random.seed(config.seed, placement(config)["ctx"])
    synthetic = config.data is None
    own = feed(batches(config), lambda batch: on_device(batch.images, config), kept=synthetic)
    kept = (next(own),) if synthetic else ()
    optimizer = [adam(generator, width), adam(critic, width)]
    return Workload(spec, config, [generator, critic], optimizer, kept, own, penalty)


def adam(network: nn.HybridBlock, width: int) -> gluon.Trainer:
    """Return the optimizer of a network with this width."""
    beta1, beta2 = BETAS
    settings = {"learning_rate": learning_rate(width), "beta1": beta1, "beta2": beta2, "epsilon": ADAM_EPSILON}
    return gluon.Trainer(network.collect_params(), "adam", settings)


def initialize(network: nn.HybridBlock, weights: Weights, config: Config) -> None:
    """Set the drawn weights on a new network, normalization scales to 1, and all other parameters to 0."""
    place = placement(config)
    network.cast(place["dtype"])
    network.initialize(mx.init.Zero(), ctx=place["ctx"])
    parameters = network._collect_params_with_prefix()  # noqa: SLF001 - the only way to structural names
    for name, values in weights:
        parameters[name].set_data(mx.nd.array(values))


def on_device(values: NDArray[np.float32], config: Config) -> mx.nd.NDArray:
    """Return values as an array on the device."""
    return mx.nd.array(values, **placement(config))


def placement(config: Config) -> dict[str, Any]:
    """Return the device and the data type of a run's arrays."""
    return {"ctx": context_of(config), "dtype": dtype_of(config)}
