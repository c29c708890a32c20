"""WGAN-GP's layers: shape, parameters and multiply-accumulates of each, independent of any framework.

The layers are listed in the order of each network; a block's shortcut comes last in the block. Every convolution pads
by half its kernel and has stride 1. Activations change size by doubling before a convolution (generator) or by mean
pooling after one (critic).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from tbdprof.suite.layers import Dense

SIDE = 64  # of a picture in pixels
NOISE = 128  # values of noise from which the generator makes a picture
WIDTH = 64
START = 4  # side of the activations that the generator begins with and the critic ends with
MULTIPLES = (1, 2, 4, 8, 8)  # of the width: channels at sides 64, 32, 16, 8, 4


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution over square activations."""

    name: str
    inputs: int  # channels
    outputs: int
    kernel: int
    side: int  # of its input and its output
    bias: bool = True
    he: bool = False  # whether its weights are initialized by He's rule; see `initial`

    @property
    def shape(self) -> tuple[int, ...]:
        """The weight's shape: outputs, inputs, height, width."""
        return (self.outputs, self.inputs, self.kernel, self.kernel)

    @property
    def parameters(self) -> int:
        """Trainable parameters."""
        return prod(self.shape) + self.bias * self.outputs

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a picture's forward pass."""
        return prod(self.shape) * self.side**2


@dataclass(frozen=True, slots=True)
class Normalization:
    """Batch or layer normalization with a scale and a shift for each channel, followed by ReLU."""

    name: str
    channels: int
    side: int

    @property
    def parameters(self) -> int:
        """Trainable parameters."""
        return 2 * self.channels


Layer = Convolution | Dense | Normalization


def channels(width: int) -> tuple[int, ...]:
    """Return the channels of the critic's activations before and after each block, largest activation first."""
    return tuple(width * multiple for multiple in MULTIPLES)


def generator(width: int = WIDTH) -> tuple[Layer, ...]:
    """Return the generator's layers, from noise to a picture."""
    return tuple(_generator(width))


def critic(width: int = WIDTH) -> tuple[Layer, ...]:
    """Return the critic's layers, from a picture to its score."""
    return tuple(_critic(width))


def parameters(layers: Iterable[Layer]) -> int:
    """Return how many trainable parameters layers have."""
    return sum(layer.parameters for layer in layers)


def macs(layers: Iterable[Layer]) -> int:
    """Return the multiply-accumulates of a picture's forward pass in convolutions and dense layers."""
    return sum(layer.macs for layer in layers if not isinstance(layer, Normalization))


def _generator(width: int) -> Iterator[Layer]:
    *_, first = deepest_first = channels(width)[::-1]
    yield Dense("dense", NOISE, deepest_first[0] * START**2)
    side = START
    for number, (inputs, outputs) in enumerate(pairwise(deepest_first), 1):
        yield Normalization(f"block{number}.norm1", inputs, side)
        side *= 2
        yield Convolution(f"block{number}.conv1", inputs, outputs, 3, side, bias=False, he=True)
        yield Normalization(f"block{number}.norm2", outputs, side)
        yield Convolution(f"block{number}.conv2", outputs, outputs, 3, side, he=True)
        yield Convolution(f"block{number}.shortcut", inputs, outputs, 1, side)
    yield Normalization("norm", first, side)
    yield Convolution("conv", first, 3, 3, side)


def _critic(width: int) -> Iterator[Layer]:
    first, *_, last = largest_first = channels(width)
    side = SIDE
    yield Convolution("conv", 3, first, 3, side)
    for number, (inputs, outputs) in enumerate(pairwise(largest_first), 1):
        yield Normalization(f"block{number}.norm1", inputs, side)
        yield Convolution(f"block{number}.conv1", inputs, inputs, 3, side, bias=False, he=True)
        yield Normalization(f"block{number}.norm2", inputs, side)
        yield Convolution(f"block{number}.conv2", inputs, outputs, 3, side, he=True)
        side //= 2
        yield Convolution(f"block{number}.shortcut", inputs, outputs, 1, side)
    yield Dense("dense", last * START**2, 1)
