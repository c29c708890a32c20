"""ResNet-50's layers: shape, parameters and multiply-accumulates of each, independent of any framework.

The order is that of the network; a block's shortcut convolution, where it has one, comes last in the block. Every
convolution is without bias, pads by half its kernel, and is followed by batch normalization.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tbdprof.errors import UsageError
from tbdprof.suite.classifier import CLASSES
from tbdprof.suite.layers import Convolution, Dense
from tbdprof.suite.workload import Config


@dataclass(frozen=True, slots=True)
class Stage:
    """Bottleneck blocks of one width: the first may halve the sides, and all output `EXPANSION` × width channels."""

    width: int
    blocks: int
    stride: int


EXPANSION = 4
STEM_WIDTH = 64
STAGES = (Stage(64, 3, 1), Stage(128, 4, 2), Stage(256, 6, 2), Stage(512, 3, 2))
FEATURES = EXPANSION * STAGES[-1].width


def layers(variant: str = "v1.5", image_size: int = 224) -> tuple[Convolution | Dense, ...]:
    """Return every layer with trainable weights, in the network's order."""
    return (*_convolutions(variant, image_size), Dense("fc", FEATURES, CLASSES))


def step_flops(variant: str = "v1.5", image_size: int = 224) -> int:
    """Return the FLOPs of a training step for each image; the first convolution needs no gradient of its input."""
    first, *_ = every = layers(variant, image_size)
    return 2 * (3 * sum(layer.macs for layer in every) - first.macs)


def strides(variant: str, stride: int) -> tuple[int, int]:
    """Return the strides of a block's first 1×1 and of its 3×3 convolution."""
    return (stride, 1) if variant == "v1" else (1, stride)


def check(config: Config) -> None:
    """Raise UsageError if the last batch normalization would see a single value per channel."""
    last_side = list(_convolutions(str(config.options["variant"]), int(config.options["image_size"])))[-1].side
    if config.batch_size * last_side**2 < 2:
        raise UsageError("batch size 1 leaves batch normalization one value a channel: give --image-size 33 or more")


def _convolutions(variant: str, image_size: int) -> Iterator[Convolution]:
    side = _strided(image_size, 2)
    yield _convolution("conv1", 3, STEM_WIDTH, 7, 2, side)
    side, channels = _strided(side, 2), STEM_WIDTH  # max pooling
    for number, stage in enumerate(STAGES, 1):
        for index in range(stage.blocks):
            stride = stage.stride if index == 0 else 1
            yield from _bottleneck(f"layer{number}.{index}", channels, stage.width, strides(variant, stride), side)
            side, channels = _strided(side, stride), EXPANSION * stage.width


def _bottleneck(name: str, inputs: int, width: int, strides: tuple[int, int], input_side: int) -> Iterator[Convolution]:
    first, second = strides
    inner_side = _strided(input_side, first)
    side = _strided(inner_side, second)
    outputs = EXPANSION * width
    yield _convolution(f"{name}.conv1", inputs, width, 1, first, inner_side)
    yield _convolution(f"{name}.conv2", width, width, 3, second, side)
    yield _convolution(f"{name}.conv3", width, outputs, 1, 1, side)
    if inputs != outputs:
        yield _convolution(f"{name}.downsample.0", inputs, outputs, 1, first * second, side)


def _convolution(name: str, inputs: int, outputs: int, kernel: int, stride: int, side: int) -> Convolution:
    return Convolution(name, inputs, outputs, (kernel, kernel), side, stride, normalized=True)


def _strided(side: int, stride: int) -> int:
    return (side - 1) // stride + 1
