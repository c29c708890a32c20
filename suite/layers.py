"""The layers that several models share: shape, parameters and work of each, without any framework."""

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution over square activations, with a bias or, in its place, a batch normalization after it."""

    name: str
    inputs: int  # channels
    outputs: int
    kernel: tuple[int, int]
    side: int  # of the output
    stride: int = 1
    normalized: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The weight's shape: outputs, inputs, height, width."""
        return (self.outputs, self.inputs, *self.kernel)

    @property
    def parameters(self) -> int:
        """Trainable parameters: the weight, and the bias or the normalization's scale and shift."""
        return prod(self.shape) + self.outputs * (2 if self.normalized else 1)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a sample's forward pass."""
        return prod(self.shape) * self.side**2


@dataclass(frozen=True, slots=True)
class Dense:
    """A dense layer with a bias."""

    name: str
    inputs: int
    outputs: int

    @property
    def shape(self) -> tuple[int, int]:
        """The weight's shape: outputs, inputs."""
        return (self.outputs, self.inputs)

    @property
    def parameters(self) -> int:
        """Trainable parameters."""
        return self.outputs * (self.inputs + 1)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the forward pass at one position: for a sample, or for a frame."""
        return self.outputs * self.inputs
