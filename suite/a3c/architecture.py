"""The network's layers: shapes, parameters and work of each, without any framework.

Convolutions do not pad. Each layer but the two answers is followed by ReLU.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from tbdprof.suite.a3c import ACTIONS, FRAMES


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution over square maps, with a bias."""

    name: str
    inputs: int  # channels
    outputs: int
    kernel: int
    stride: int
    side: int  # of the map put out

    @property
    def shape(self) -> tuple[int, ...]:
        """The weight's shape: outputs, inputs, height, width."""
        return (self.outputs, self.inputs, self.kernel, self.kernel)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of an observation's forward pass."""
        return prod(self.shape) * self.side**2


@dataclass(frozen=True, slots=True)
class Dense:
    """A dense layer with a bias."""

    name: str
    inputs: int
    outputs: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The weight's shape: outputs, inputs."""
        return (self.outputs, self.inputs)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of an observation's forward pass."""
        return prod(self.shape)


Layer = Convolution | Dense

MAPS, MAP_SIDE = 32, 9  # what the convolutions put out
FLAT = MAPS * MAP_SIDE**2
WIDTH = 256

CONV1 = Convolution("conv1", FRAMES, 16, kernel=8, stride=4, side=20)
CONV2 = Convolution("conv2", 16, MAPS, kernel=4, stride=2, side=MAP_SIDE)
DENSE = Dense("dense", FLAT, WIDTH)
POLICY = Dense("policy", WIDTH, ACTIONS)
VALUE = Dense("value", WIDTH, 1)
LAYERS: tuple[Layer, ...] = (CONV1, CONV2, DENSE, POLICY, VALUE)


def parameters(layers: Iterable[Layer] = LAYERS) -> int:
    """Return how many trainable parameters layers have."""
    return sum(prod(layer.shape) + layer.outputs for layer in layers)


def macs(layers: Iterable[Layer] = LAYERS) -> int:
    """Return the multiply-accumulates of an observation's forward pass."""
    return sum(layer.macs for layer in layers)
