"""The Transformer's layers: shape, parameters and multiply-accumulates of each, independent of any framework.

The order is that of the network. A layer works at the positions of one side of a batch, padding included. An attention
takes its queries from one side and its keys from the same or the other side. The embedding is listed once and used
three times: its rows are looked up for both sides, and it is the weight of the last matmul, which gives the scores.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

from tbdprof.errors import UsageError
from tbdprof.suite.workload import Options

VOCABULARY = 37_000
WIDTH = 512
INNER = 2048
HEADS = 8
NORM_EPSILON = 1e-6
LAYERS = 6  # of the encoder, and as many of the decoder

Side = Literal["source", "target"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a network."""

    vocabulary: int = VOCABULARY
    width: int = WIDTH
    layers: int = LAYERS  # of the encoder, and as many of the decoder

    @property
    def inner(self) -> int:
        """Units between the two dense layers of a block: four times the width, as in the paper."""
        return self.width * (INNER // WIDTH)


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a batch: its sentences, and the positions that each has on both sides, padding included."""

    sentences: int
    source: int
    target: int

    def places(self, side: Side) -> int:
        """Return the number of positions of a sentence on one side."""
        return self.source if side == "source" else self.target


@dataclass(frozen=True, slots=True)
class Embedding:
    """The embedding: a vector for each word; the decoder's output times all these vectors gives the scores."""

    name: str
    words: int
    width: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The weight's shape: words, width."""
        return (self.words, self.width)

    @property
    def parameters(self) -> int:
        """Trainable parameters."""
        return prod(self.shape)

    def macs(self, batch: Shape) -> int:
        """Return the multiply-accumulates of a forward pass: those of the scores, because a lookup has none."""
        return batch.sentences * batch.target * self.parameters


@dataclass(frozen=True, slots=True)
class Dense:
    """A dense layer with a bias."""

    name: str
    inputs: int
    outputs: int
    side: Side

    @property
    def shape(self) -> tuple[int, ...]:
        """The weight's shape: outputs, inputs."""
        return (self.outputs, self.inputs)

    @property
    def parameters(self) -> int:
        """Trainable parameters."""
        return self.outputs * (self.inputs + 1)

    def macs(self, batch: Shape) -> int:
        """Return the multiply-accumulates of a forward pass."""
        return batch.sentences * batch.places(self.side) * prod(self.shape)


@dataclass(frozen=True, slots=True)
class Attention:
    """Two matmuls over all heads: queries by keys, which gives the attention's weights, and these weights by values.

    Masked positions are computed like all others.
    """

    name: str
    width: int
    queries: Side
    keys: Side

    @property
    def parameters(self) -> int:
        """Trainable parameters: none, because the projections around it are layers of their own."""
        return 0

    def macs(self, batch: Shape) -> int:
        """Return the multiply-accumulates of a forward pass."""
        return 2 * batch.sentences * batch.places(self.queries) * batch.places(self.keys) * self.width


@dataclass(frozen=True, slots=True)
class Normalization:
    """Layer normalization over the width, with a scale and a shift."""

    name: str
    width: int

    @property
    def parameters(self) -> int:
        """Trainable parameters."""
        return 2 * self.width

    def macs(self, _batch: Shape) -> int:
        """Return the multiply-accumulates of a forward pass: none, because it has no matmul."""
        return 0


Layer = Embedding | Dense | Attention | Normalization


def sizes_of(options: Options) -> Sizes:
    """Return the sizes that the options request; raises UsageError for a width that the heads cannot divide."""
    sizes = Sizes(*(int(options[name]) for name in ("vocabulary", "width", "layers")))
    if sizes.width % HEADS:
        raise UsageError(f"--width is {sizes.width}: give a multiple of {HEADS}, one part for each head")
    return sizes


def layers(sizes: Sizes | None = None) -> tuple[Layer, ...]:
    """Return the layers from the embedding to the decoder's last normalization; without `sizes`, those of the paper."""
    return tuple(_layers(sizes or Sizes()))


def parameters(of: Iterable[Layer]) -> int:
    """Return how many trainable parameters layers have."""
    return sum(layer.parameters for layer in of)


def macs(of: Iterable[Layer], batch: Shape) -> int:
    """Return the multiply-accumulates of a batch's forward pass."""
    return sum(layer.macs(batch) for layer in of)


def _layers(sizes: Sizes) -> Iterator[Layer]:
    yield Embedding("embedding", sizes.vocabulary, sizes.width)
    for number in range(sizes.layers):
        block = f"encoder.{number}"
        yield from _attention(f"{block}.attention", sizes.width, "source", "source")
        yield from _feed_forward(block, sizes, "source")
    for number in range(sizes.layers):
        block = f"decoder.{number}"
        yield from _attention(f"{block}.attention", sizes.width, "target", "target")
        yield from _attention(f"{block}.cross_attention", sizes.width, "target", "source")
        yield from _feed_forward(block, sizes, "target")


def _attention(name: str, width: int, queries: Side, keys: Side) -> Iterator[Layer]:
    yield Dense(f"{name}.query", width, width, queries)
    yield Dense(f"{name}.key", width, width, keys)
    yield Dense(f"{name}.value", width, width, keys)
    yield Attention(name, width, queries, keys)
    yield Dense(f"{name}.output", width, width, queries)
    yield Normalization(f"{name}_norm", width)


def _feed_forward(block: str, sizes: Sizes, side: Side) -> Iterator[Layer]:
    yield Dense(f"{block}.inner", sizes.width, sizes.inner, side)
    yield Dense(f"{block}.outer", sizes.inner, sizes.width, side)
    yield Normalization(f"{block}.norm", sizes.width)
