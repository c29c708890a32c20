"""WGAN-GP in PyTorch."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tbdprof.suite.data.inputs import Pictures, feed
from tbdprof.suite.initial import Weights
from tbdprof.suite.on_torch import device_of, dtype_of, optimizer_settings, switch
from tbdprof.suite.wgan import ADAM_EPSILON, BETAS, NORM_EPSILON, PENALTY, initial, learning_rate
from tbdprof.suite.wgan.architecture import NOISE, START, channels
from tbdprof.suite.wgan.pictures import batches
from tbdprof.suite.workload import Config, Spec


class Placement(TypedDict):
    """The device and the data type of tensors."""

    device: torch.device
    dtype: torch.dtype


class UpBlock(nn.Module):
    """A residual block that doubles height and width before the first of two 3×3 convolutions, and in its shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1 = batch_norm(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm2 = batch_norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)
        self.relu = nn.ReLU(inplace=True)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        shortcut: Tensor = self.shortcut(self.up(x))
        x = self.conv1(self.up(self.relu(self.norm1(x))))
        x = self.conv2(self.relu(self.norm2(x)))
        x += shortcut
        return x


class DownBlock(nn.Module):
    """A residual block that halves height and width after the second of two 3×3 convolutions, and in its shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1 = layer_norm(inputs)
        self.conv1 = nn.Conv2d(inputs, inputs, 3, padding=1, bias=False)
        self.norm2 = layer_norm(inputs)
        self.conv2 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        shortcut: Tensor = self.shortcut(self.pool(x))
        x = self.conv1(self.relu(self.norm1(x)))
        x = self.pool(self.conv2(self.relu(self.norm2(x))))
        x += shortcut
        return x


class Generator(nn.Module):
    """Turns noise (batch, 128) into pictures (batch, 3, 64, 64)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        first, second, third, fourth, fifth = channels(width)[::-1]
        self.dense = nn.Linear(NOISE, first * START**2)
        self.block1 = UpBlock(first, second)
        self.block2 = UpBlock(second, third)
        self.block3 = UpBlock(third, fourth)
        self.block4 = UpBlock(fourth, fifth)
        self.norm = batch_norm(fifth)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(fifth, 3, 3, padding=1)

    def forward(self, noise: Tensor) -> Tensor:
        """Return pictures, from -1 to 1."""
        x = self.dense(noise).unflatten(1, (-1, START, START))
        x = self.block4(self.block3(self.block2(self.block1(x))))
        return torch.tanh(self.conv(self.relu(self.norm(x))))


class Critic(nn.Module):
    """Turns pictures (batch, 3, 64, 64) into scores (batch,)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        first, second, third, fourth, fifth = channels(width)
        self.conv = nn.Conv2d(3, first, 3, padding=1)
        self.block1 = DownBlock(first, second)
        self.block2 = DownBlock(second, third)
        self.block3 = DownBlock(third, fourth)
        self.block4 = DownBlock(fourth, fifth)
        self.dense = nn.Linear(fifth * START**2, 1)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return the scores."""
        x = self.block4(self.block3(self.block2(self.block1(self.conv(pictures)))))
        scores: Tensor = self.dense(x.flatten(1))
        return scores.squeeze(1)


def batch_norm(channels: int) -> nn.BatchNorm2d:
    """Return a batch normalization that uses only the statistics of the current batch."""
    return nn.BatchNorm2d(channels, eps=NORM_EPSILON, track_running_stats=False)


def layer_norm(channels: int) -> nn.GroupNorm:
    """Return a normalization over channel, height and width with a scale and a shift for each channel."""
    return nn.GroupNorm(1, channels, eps=NORM_EPSILON)


@dataclass(frozen=True, slots=True)
class Workload:
    """WGAN-GP and the pictures it is trained on."""

    spec: Spec
    config: Config
    model: list[nn.Module]  # generator, critic
    optimizer: list[torch.optim.Adam]  # of each
    inputs: tuple[Tensor, ...]  # the pictures if one batch is reused, empty otherwise
    batches: Iterator[Tensor]
    random: torch.Generator

    def step(self) -> float:
        """Train the critic on the next batches, then the generator once; return how many real pictures were used."""
        of_the_step = [next(self.batches) for _ in range(int(self.config.options["critic_steps"]))]
        for real in of_the_step:
            self.critic_step(real, self.noise(), self.coefficients())
        self.generator_step(self.noise())
        return self.config.batch_size * len(of_the_step)

    def critic_step(self, real: Tensor, noise: Tensor, coefficients: Tensor) -> Tensor:
        """Train the critic once and return its loss before the update.

        `noise` is (batch, 128). `coefficients`, (batch, 1, 1, 1), mix real and generated pictures for the penalty.
        """
        _, critic = self.model
        _, optimizer = self.optimizer
        optimizer.zero_grad()
        loss = self.critic_loss(real, noise, coefficients)
        # Of the interpolates, that ask for a gradient too, the loss' is not wanted.
        loss.backward(inputs=list(critic.parameters()))  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    def generator_step(self, noise: Tensor) -> Tensor:
        """Train the generator once; return its loss before the update."""
        generator, _ = self.model
        optimizer, _ = self.optimizer
        optimizer.zero_grad()
        loss = self.generator_loss(noise)
        loss.backward(inputs=list(generator.parameters()))  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    def critic_loss(self, real: Tensor, noise: Tensor, coefficients: Tensor) -> Tensor:
        """Return the critic's loss: mean score of generated minus that of real pictures, plus the weighted penalty."""
        generator, critic = self.model
        with self._precision(real.device):
            with torch.no_grad():
                made = generator(noise)
            interpolates = real + coefficients * (made - real)
            loss: Tensor = critic(made).mean() - critic(real).mean() + PENALTY * penalty(critic, interpolates)
            return loss

    def generator_loss(self, noise: Tensor) -> Tensor:
        """Return the generator's loss: the negative mean of the critic's scores of generated pictures."""
        generator, critic = self.model
        with self._precision(noise.device):
            loss: Tensor = -critic(generator(noise)).mean()
            return loss

    def noise(self) -> Tensor:
        """Return standard normal noise for a batch."""
        return torch.randn((self.config.batch_size, NOISE), generator=self.random, **placement(self.config))

    def coefficients(self) -> Tensor:
        """Return a uniform number from 0 to 1 for each picture of a batch."""
        return torch.rand((self.config.batch_size, 1, 1, 1), generator=self.random, **placement(self.config))

    def train(self, batch: Pictures) -> float:
        """Train the critic on each `batch_size` pictures, then the generator once; return the critic's last loss."""
        for real in torch.split(on_device(batch.images, self.config), self.config.batch_size):
            loss = self.critic_step(real, self.noise(), self.coefficients())
        self.generator_step(self.noise())
        return loss.item()

    @torch.no_grad()
    def predict(self, inputs: Pictures | NDArray[np.float32]) -> NDArray[Any]:
        """Return the critic's scores of pictures, or the pictures generated from noise of shape (any number, 128)."""
        generator, critic = self.model
        network, given = (critic, inputs.images) if isinstance(inputs, Pictures) else (generator, inputs)
        answer: NDArray[Any] = network(on_device(given, self.config)).cpu().numpy()
        return answer

    def _precision(self, device: torch.device) -> torch.autocast:
        return torch.autocast(device.type, torch.bfloat16, enabled=self.config.precision == "bf16")


def penalty(critic: nn.Module, pictures: Tensor) -> Tensor:
    """Return the gradient penalty: the mean of (n - 1)².

    n is the norm of the gradient of a picture's score with respect to the picture.
    """
    pictures.requires_grad_()
    (gradients,) = torch.autograd.grad(critic(pictures).sum(), pictures, create_graph=True)
    lengths: Tensor = gradients.flatten(1).norm(dim=1)
    return (lengths - 1).square().mean()


def build(spec: Spec, config: Config) -> Workload:
    """Return WGAN-GP with its initial weights, its optimizers and its batches on the device."""
    width = int(config.options["width"])
    model: list[nn.Module] = [Generator(width), Critic(width)]
    for network, weights in zip(model, (initial.generator, initial.critic), strict=True):
        initialize(network, weights(config.seed, width))
        network.to(**placement(config))
        switch(network, config, (UpBlock, DownBlock))
    more = optimizer_settings(config)
    optimizer = [
        torch.optim.Adam(network.parameters(), learning_rate(width), BETAS, eps=ADAM_EPSILON, **more)
        for network in model
    ]
    synthetic = config.data is None
    own = feed(batches(config), lambda batch: on_device(batch.images, config), kept=synthetic)
    kept = (next(own),) if synthetic else ()
    random = torch.Generator(device_of(config)).manual_seed(config.seed)
    return Workload(spec, config, model, optimizer, kept, own, random)


@torch.no_grad()
def initialize(network: nn.Module, weights: Weights) -> None:
    """Set the drawn weights on a new network, and all biases to 0."""
    for name, values in weights:
        network.get_parameter(name).copy_(torch.from_numpy(values))
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def on_device(values: NDArray[np.float32], config: Config) -> Tensor:
    """Return values as a tensor, copied into torch's own memory."""
    return torch.tensor(values, **placement(config))


def placement(config: Config) -> Placement:
    """Return the device and the data type of a run's tensors."""
    return {"device": device_of(config), "dtype": dtype_of(config)}
