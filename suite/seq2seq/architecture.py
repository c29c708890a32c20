"""Seq2Seq's layers: shape, parameters and multiply-accumulates of each, independent of any framework."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Literal

WIDTH = 512
SOURCE_WORDS = 17_191  # the published vocabularies for IWSLT15, with their three marks
TARGET_WORDS = 7_709
GATES = ("input", "forget", "candidate", "output")  # in the order of their rows in a weight, in all three frameworks

Side = Literal["source", "target"]


@dataclass(frozen=True, slots=True)
class Embedding:
    """An embedding: one row for each word."""

    name: str
    words: int
    width: int
    side: Side

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights, by name."""
        return {"weight": (self.words, self.width)}

    @property
    def biases(self) -> int:
        """The number of trained biases."""
        return 0

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the forward pass at one position: a lookup has none."""
        return 0


@dataclass(frozen=True, slots=True)
class Lstm:
    """One direction of an LSTM layer, with one bias per gate."""

    name: str
    inputs: int
    width: int
    side: Side

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights, by name: (outputs of all gates, inputs)."""
        return {"input": (4 * self.width, self.inputs), "state": (4 * self.width, self.width)}

    @property
    def biases(self) -> int:
        """The number of trained biases."""
        return 4 * self.width

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the forward pass at one position."""
        return sum(map(prod, self.weights.values()))


@dataclass(frozen=True, slots=True)
class Dense:
    """A dense layer without a bias."""

    name: str
    inputs: int
    outputs: int
    side: Side

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """The shape of the weight: outputs, inputs."""
        return {"weight": (self.outputs, self.inputs)}

    @property
    def biases(self) -> int:
        """The number of trained biases."""
        return 0

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the forward pass at one position."""
        return self.outputs * self.inputs


Layer = Embedding | Lstm | Dense


def layers(width: int = WIDTH) -> tuple[Layer, ...]:
    """Return the layers in the order in which a sentence passes them."""
    return (
        Embedding("encoder.embedding", SOURCE_WORDS, width, "source"),
        Lstm("encoder.forward", width, width, "source"),
        Lstm("encoder.backward", width, width, "source"),
        Embedding("decoder.embedding", TARGET_WORDS, width, "target"),
        Lstm("decoder.first", 2 * width, width, "target"),  # of a word and the last attention vector
        Lstm("decoder.second", width, width, "target"),
        Dense("decoder.memory", 2 * width, width, "source"),  # makes keys of what the encoder put out
        Dense("decoder.attention", 3 * width, width, "target"),  # of the second layer's output and the context
        Dense("decoder.projection", width, TARGET_WORDS, "target"),
    )


def parameters(width: int = WIDTH) -> int:
    """Return how many trainable parameters there are: those of the layers, and the scale of the attention's scores."""
    return sum(of_layer(layer) for layer in layers(width)) + 1


def of_layer(layer: Layer) -> int:
    """Return a layer's trainable parameters."""
    return sum(map(prod, layer.weights.values())) + layer.biases


def macs(layers: Iterable[Layer], side: Side) -> int:
    """Return the multiply-accumulates of the forward pass at a position of one side, without attention."""
    return sum(layer.macs for layer in layers if layer.side == side)


def attention_macs(width: int) -> int:
    """Return the multiply-accumulates of attention for one pair of positions: its score, and its part of the sum."""
    return width + 2 * width


def saved_values(width: int, words: int = 25) -> int:
    """Return about how many values training keeps for the backward pass, for a pair of sentences of `words` words each.

    An LSTM keeps its input before and after dropout, four gates, the cell's state, its tanh and the output. That is 7
    times the width, and twice the width of its inputs. Logits are kept with their logarithms. The weights of attention
    are words × words.
    """
    of_lstms = sum(7 * layer.width + 2 * layer.inputs for layer in layers(width) if isinstance(layer, Lstm))
    of_attention = 2 * width + width + 3 * width + width + 2 * words  # memory, keys, what the layer joins, its output
    return words * (of_lstms + of_attention + 2 * TARGET_WORDS)
