"""The Transformer's network in MXNet's Gluon.

A position is masked by adding a number to its attention score: 0 if it is visible, or a very low number that leaves it
no weight.
"""

from math import sqrt
from typing import Any

from mxnet.gluon import nn

from tbdprof.suite.transformer.architecture import HEADS, NORM_EPSILON, Sizes
from tbdprof.suite.transformer.sentences import PLACES


class Attention(nn.HybridBlock):  # type: ignore[misc]
    """Multi-head attention; the heads divide the width among themselves."""

    def __init__(self, width: int, **names: Any) -> None:
        super().__init__(**names)
        self.scale = 1 / sqrt(width // HEADS)
        with self.name_scope():
            self.query = dense(width, width)
            self.key = dense(width, width)
            self.value = dense(width, width)
            self.output = dense(width, width)

    def hybrid_forward(self, F: Any, x: Any, memory: Any, hidden: Any) -> Any:  # noqa: N803
        """Return, for each position of `x`, what it attends to in `memory`; `hidden` is a mask, added to scores."""
        query, key, value = by_head(F, self.query(x)), by_head(F, self.key(memory)), by_head(F, self.value(memory))
        scores = F.reshape(F.batch_dot(query * self.scale, key, transpose_b=True), (-4, -1, HEADS, 0, 0))
        shares = F.softmax(F.broadcast_add(scores, hidden))  # (batch, heads, places of x, places of memory)
        attended = F.batch_dot(F.reshape(shares, (-3, 0, 0)), value)
        return self.output(F.reshape(F.transpose(F.reshape(attended, (-4, -1, HEADS, 0, 0)), (0, 2, 1, 3)), (0, 0, -3)))


class EncoderBlock(nn.HybridBlock):  # type: ignore[misc]
    """Attention to the source, then two dense layers; each part has a residual connection, which is then normalized."""

    def __init__(self, sizes: Sizes, dropout: float, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.attention = Attention(sizes.width)
            self.attention_norm = layer_norm(sizes.width)
            self.inner = dense(sizes.width, sizes.inner)
            self.relu = nn.Activation("relu")
            self.outer = dense(sizes.inner, sizes.width)
            self.norm = layer_norm(sizes.width)
            self.dropout = nn.Dropout(dropout)

    def hybrid_forward(self, F: Any, x: Any, hidden: Any) -> Any:  # noqa: N803
        """Return the block's output, of shape (batch, source, width)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, x, hidden)))
        return self.norm(x + self.dropout(self.outer(self.relu(self.inner(x)))))


class DecoderBlock(nn.HybridBlock):  # type: ignore[misc]
    """Attention to the target so far, then to the source, then two dense layers; normalized as in `EncoderBlock`."""

    def __init__(self, sizes: Sizes, dropout: float, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.attention = Attention(sizes.width)
            self.attention_norm = layer_norm(sizes.width)
            self.cross_attention = Attention(sizes.width)
            self.cross_attention_norm = layer_norm(sizes.width)
            self.inner = dense(sizes.width, sizes.inner)
            self.relu = nn.Activation("relu")
            self.outer = dense(sizes.inner, sizes.width)
            self.norm = layer_norm(sizes.width)
            self.dropout = nn.Dropout(dropout)

    def hybrid_forward(self, F: Any, x: Any, later: Any, memory: Any, hidden: Any) -> Any:  # noqa: N803
        """Return the block's output, of shape (batch, target, width)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, x, later)))
        x = self.cross_attention_norm(x + self.dropout(self.cross_attention(x, memory, hidden)))
        return self.norm(x + self.dropout(self.outer(self.relu(self.inner(x)))))


class Transformer(nn.HybridBlock):  # type: ignore[misc]
    """Turns words (batch, source) and (batch, target) into the scores of each next word, (batch, target, vocabulary).

    The embedding's weight is one parameter. Its rows are looked up for both sides, and it is multiplied to give the
    scores.
    """

    def __init__(self, sizes: Sizes, dropout: float, dtype: str, **names: Any) -> None:
        super().__init__(**names)
        self.scale = sqrt(sizes.width)
        with self.name_scope():
            self.embedding = nn.Embedding(sizes.vocabulary, sizes.width, dtype=dtype)
            tied = {"params": self.embedding.params, "use_bias": False, "dtype": dtype}
            self.scores = dense(sizes.width, sizes.vocabulary, **tied)
            places = (1, PLACES, sizes.width)
            self.positions = self.params.get("positions", shape=places, dtype=dtype, differentiable=False)
            self.dropout = nn.Dropout(dropout)
            self.encoder, self.decoder = nn.HybridSequential(), nn.HybridSequential()
            for _ in range(sizes.layers):
                self.encoder.add(EncoderBlock(sizes, dropout))
                self.decoder.add(DecoderBlock(sizes, dropout))

    def hybrid_forward(self, F: Any, source: Any, hidden: Any, given: Any, later: Any, positions: Any) -> Any:  # noqa: N803
        """Return the scores, before any softmax.

        `hidden`, (batch, 1, 1, source), is added to attention scores and masks the padding of sources. `later`, (1, 1,
        target, target), masks for each target position those after it.
        """
        memory = self.embed(F, source, positions)
        for block in self.encoder:
            memory = block(memory, hidden)
        x = self.embed(F, given, positions)
        for block in self.decoder:
            x = block(x, later, memory, hidden)
        return self.scores(x)

    def embed(self, F: Any, words: Any, positions: Any) -> Any:  # noqa: N803
        """Return the scaled vectors of words, plus the vectors of their positions."""
        scaled = self.embedding(words) * self.scale
        return self.dropout(F.broadcast_add(scaled, F.slice_like(positions, scaled, axes=(1,))))


def dense(inputs: int, outputs: int, **more: Any) -> nn.Dense:
    """Return a dense layer that is applied at each position of a batch."""
    return nn.Dense(outputs, in_units=inputs, flatten=False, **more)


def layer_norm(width: int) -> nn.LayerNorm:
    """Return a normalization over the width."""
    return nn.LayerNorm(epsilon=NORM_EPSILON, in_channels=width)


def by_head(F: Any, x: Any) -> Any:  # noqa: N803
    """Return an array (batch, places, width) as (batch × heads, places, width of a head)."""
    return F.reshape(F.transpose(F.reshape(x, (0, 0, -4, HEADS, -1)), (0, 2, 1, 3)), (-3, 0, 0))
