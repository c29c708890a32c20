"""Inception-v3's layers: the network as data, and shape, parameters and work of each layer, without any framework.

The network is the one that its authors published with the paper (Szegedy et al., arXiv:1512.00567). It differs from the
paper's table 1 in the stem's widths; figures 5 to 7 are its blocks. Each framework builds the chains of convolutions,
pooling and branches that are defined here. Every convolution is without bias and is followed by batch normalization and
ReLU. Average pooling leaves the padding out of its average.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tbdprof.errors import UsageError
from tbdprof.suite.classifier import CLASSES
from tbdprof.suite.layers import Convolution, Dense
from tbdprof.suite.workload import Config

CHANNELS = 3  # of an image


@dataclass(frozen=True, slots=True)
class Step:
    """A convolution; if padded, it pads by half its kernel."""

    outputs: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    padded: bool = True

    @property
    def padding(self) -> tuple[int, int]:
        """Rows and columns of zeros on each side."""
        return (self.kernel[0] // 2, self.kernel[1] // 2) if self.padded else (0, 0)


@dataclass(frozen=True, slots=True)
class Pooling:
    """Maximum or average over squares; if padded, it pads by half a square."""

    kind: str  # max, average
    size: int
    stride: int
    padded: bool = False

    @property
    def padding(self) -> int:
        """Rows and columns on each side."""
        return self.size // 2 if self.padded else 0


@dataclass(frozen=True, slots=True)
class Branches:
    """Chains with the same input; their outputs are joined over the channels, in order."""

    chains: Mapping[str, "Chain"]


Element: TypeAlias = Step | Pooling | Branches
Chain: TypeAlias = Mapping[str, Element]  # by name, one after the other


def _chain(*elements: Element) -> Chain:
    return {str(index): element for index, element in enumerate(elements)}


_MAXIMUM = Pooling("max", 3, 2)
_AVERAGE = Pooling("average", 3, 1, padded=True)


def _block_5(pooled: int) -> Branches:
    """Return the block of figure 5, with a 5×5 instead of a 3×3 convolution in its second branch (authors' network)."""
    return Branches(
        {
            "branch1x1": _chain(Step(64)),
            "branch5x5": _chain(Step(48), Step(64, (5, 5))),
            "branch3x3": _chain(Step(64), Step(96, (3, 3)), Step(96, (3, 3))),
            "pooled": _chain(_AVERAGE, Step(pooled)),
        }
    )


def _block_6(width: int) -> Branches:
    """Return the block of figure 6, with n = 7."""
    row, column = (1, 7), (7, 1)
    twice = (Step(width, column), Step(width, row), Step(width, column), Step(192, row))
    return Branches(
        {
            "branch1x1": _chain(Step(192)),
            "branch7x7": _chain(Step(width), Step(width, row), Step(192, column)),
            "branch7x7_twice": _chain(Step(width), *twice),
            "pooled": _chain(_AVERAGE, Step(192)),
        }
    )


def _block_7() -> Branches:
    """Return the block of figure 7."""
    apart = Branches({"row": _chain(Step(384, (1, 3))), "column": _chain(Step(384, (3, 1)))})
    return Branches(
        {
            "branch1x1": _chain(Step(320)),
            "branch3x3": _chain(Step(384), apart),
            "branch3x3_twice": _chain(Step(448), Step(384, (3, 3)), apart),
            "pooled": _chain(_AVERAGE, Step(192)),
        }
    )


STEM: Chain = {
    "conv1": Step(32, (3, 3), 2, padded=False),
    "conv2": Step(32, (3, 3), padded=False),
    "conv3": Step(64, (3, 3)),
    "maxpool1": _MAXIMUM,
    "conv4": Step(80),
    "conv5": Step(192, (3, 3), padded=False),
    "maxpool2": _MAXIMUM,
}
LOWER: Chain = {
    "mixed_5b": _block_5(32),
    "mixed_5c": _block_5(64),
    "mixed_5d": _block_5(64),
    "mixed_6a": Branches(
        {
            "branch3x3": _chain(Step(384, (3, 3), 2, padded=False)),
            "branch3x3_twice": _chain(Step(64), Step(96, (3, 3)), Step(96, (3, 3), 2, padded=False)),
            "pooled": _chain(_MAXIMUM),
        }
    ),
    "mixed_6b": _block_6(128),
    "mixed_6c": _block_6(160),
    "mixed_6d": _block_6(160),
    "mixed_6e": _block_6(192),
}
UPPER: Chain = {
    "mixed_7a": Branches(
        {
            "branch3x3": _chain(Step(192), Step(320, (3, 3), 2, padded=False)),
            "branch7x7": _chain(Step(192), Step(192, (1, 7)), Step(192, (7, 1)), Step(192, (3, 3), 2, padded=False)),
            "pooled": _chain(_MAXIMUM),
        }
    ),
    "mixed_7b": _block_7(),
    "mixed_7c": _block_7(),
}
# The auxiliary classifier looks at the lower blocks' maps.
AUXILIARY: Chain = {"pool": Pooling("average", 5, 3), "conv1": Step(128), "conv2": Step(768, (5, 5), padded=False)}


def layers(image_size: int = 299) -> tuple[Convolution | Dense, ...]:
    """Return every layer with trainable weights: stem, lower and upper blocks, classifier, auxiliary classifier."""
    stem, lower = reached(CHANNELS, image_size, STEM), reached(CHANNELS, image_size, STEM, LOWER)
    upper, auxiliary = reached(*lower, UPPER), reached(*lower, AUXILIARY)
    return (
        *_convolutions("stem", CHANNELS, image_size, STEM),
        *_convolutions("lower", *stem, LOWER),
        *_convolutions("upper", *lower, UPPER),
        Dense("fc", upper[0], CLASSES),
        *_convolutions("auxiliary", *lower, AUXILIARY),
        Dense("auxiliary_fc", auxiliary[0], CLASSES),
    )


def step_flops(image_size: int = 299) -> int:
    """Return the FLOPs of a training step for each image; the first convolution needs no gradient of its input."""
    first, *_ = every = layers(image_size)
    return 2 * (3 * sum(layer.macs for layer in every) - first.macs)


def reached(channels: int, side: int, *chains: Chain) -> tuple[int, int]:
    """Return the channels and the side of the activations at the end of chains that follow one another."""
    for chain in chains:
        for element in chain.values():
            channels, side = _after(channels, side, element)
    return channels, side


def outputs(inputs: int, chain: Chain) -> int:
    """Return the channels at the end of a chain."""
    return reached(inputs, 0, chain)[0]


def check(config: Config) -> None:
    """Raise UsageError if images are too small for the auxiliary classifier, or batches for its normalization."""
    image_size = int(config.options["image_size"])
    side = reached(CHANNELS, image_size, STEM, LOWER, AUXILIARY)[1]
    if side < 1:
        raise UsageError(
            f"--image-size {image_size} leaves the auxiliary classifier nothing to look at: give 299 or more"
        )
    if config.batch_size * side**2 < 2:
        raise UsageError("batch size 1 leaves batch normalization one value a channel: give --batch-size 2 or more")


def saved_bytes(image_size: int, dropout: bool = True) -> int:
    """Return what training keeps of one image in fp32 with in-place ReLU, including its label's 8 bytes.

    Batch normalization keeps its input and its output; the ReLU and the next layer share that output. Max pooling keeps
    8-byte indices. Pooled and joined activations are kept if another layer follows. Dropout keeps its mask, a
    classifier its input, and the loss its logarithms.
    """
    every = layers(image_size)
    maps = sum(2 * layer.outputs * layer.side**2 for layer in every if isinstance(layer, Convolution))
    between = sum(_kept(CHANNELS, image_size, {**STEM, **LOWER, **UPPER}))
    auxiliary = sum(_kept(*reached(CHANNELS, image_size, STEM, LOWER), AUXILIARY))
    heads = sum(layer.inputs + layer.outputs for layer in every if isinstance(layer, Dense))
    mask = reached(CHANNELS, image_size, STEM, LOWER, UPPER)[0] if dropout else 0
    return 4 * (maps + between + auxiliary + heads + mask + CHANNELS * image_size**2) + 8


def _after(channels: int, side: int, element: Element) -> tuple[int, int]:
    if isinstance(element, Branches):
        ends = [reached(channels, side, chain) for chain in element.chains.values()]
        return sum(outputs for outputs, _ in ends), ends[0][1]
    if isinstance(element, Pooling):
        return channels, (side + 2 * element.padding - element.size) // element.stride + 1
    return element.outputs, (side + 2 * max(element.padding) - max(element.kernel)) // element.stride + 1


def _convolutions(name: str, channels: int, side: int, chain: Chain) -> Iterator[Convolution]:
    for each, element in chain.items():
        if isinstance(element, Branches):
            for branch, inner in element.chains.items():
                yield from _convolutions(f"{name}.{each}.{branch}", channels, side, inner)
        after = _after(channels, side, element)
        if isinstance(element, Step):
            yield Convolution(
                f"{name}.{each}.conv",
                channels,
                element.outputs,
                element.kernel,
                after[1],
                element.stride,
                normalized=True,
            )
        channels, side = after


def _kept(channels: int, side: int, chain: Chain) -> Iterator[int]:
    """Yield how many values, of 4 bytes each, are kept of each pooled or joined activation."""
    *_, last = chain
    for name, element in chain.items():
        if isinstance(element, Branches):
            for inner in element.chains.values():
                yield from _kept(channels, side, inner)
        channels, side = _after(channels, side, element)
        if isinstance(element, Pooling) and element.kind == "max":
            yield 2 * channels * side**2
        if not isinstance(element, Step) and name != last:
            yield channels * side**2


STEM_WIDTH = outputs(CHANNELS, STEM)
LOWER_WIDTH = outputs(STEM_WIDTH, LOWER)
UPPER_WIDTH = outputs(LOWER_WIDTH, UPPER)
AUXILIARY_WIDTH = outputs(LOWER_WIDTH, AUXILIARY)
