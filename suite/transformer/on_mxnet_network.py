"""The Transformer's network in MXNet's Gluon.

What an attention may not look at is hidden by adding a number to its scores: 0, or one so low that nothing is left.
"""

from math import sqrt
from typing import Any

from mxnet.gluon import nn

from tbdprof.suite.transformer.architecture import HEADS, NORM_EPSILON, Sizes
from tbdprof.suite.transformer.sentences import PLACES


class Attention(nn.HybridBlock):  # type: ignore[misc]
    """Attention of several heads, that share the width."""

    def __init__(self, width: int, **names: Any) -> None:
        super().__init__(**names)
        self.scale = 1 / sqrt(width // HEADS)
        with self.name_scope():
            self.query = dense(width, width)
            self.key = dense(width, width)
            self.value = dense(width, width)
            self.output = dense(width, width)

    def hybrid_forward(self, F: Any, x: Any, memory: Any, hidden: Any) -> Any:  # noqa: N803
        """Return what each place of x takes from those of memory that are not hidden."""
        query, key, value = by_head(F, self.query(x)), by_head(F, self.key(memory)), by_head(F, self.value(memory))
        scores = F.reshape(F.batch_dot(query * self.scale, key, transpose_b=True), (-4, -1, HEADS, 0, 0))
        shares = F.softmax(F.broadcast_add(scores, hidden))  # (batch, heads, places of x, places of memory)
        attended = F.batch_dot(F.reshape(shares, (-3, 0, 0)), value)
        return self.output(F.reshape(F.transpose(F.reshape(attended, (-4, -1, HEADS, 0, 0)), (0, 2, 1, 3)), (0, 0, -3)))


class EncoderBlock(nn.HybridBlock):  # type: ignore[misc]
    """Attention to the source and two dense layers, each with a normalized residual connection around it."""

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
        """Return the block's output, (batch, source, width)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, x, hidden)))
        return self.norm(x + self.dropout(self.outer(self.relu(self.inner(x)))))


class DecoderBlock(nn.HybridBlock):  # type: ignore[misc]
    """Attention to the target so far and to the source, and two dense layers, as in the encoder."""

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
        """Return the block's output, (batch, target, width)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, x, later)))
        x = self.cross_attention_norm(x + self.dropout(self.cross_attention(x, memory, hidden)))
        return self.norm(x + self.dropout(self.outer(self.relu(self.inner(x)))))


class Transformer(nn.HybridBlock):  # type: ignore[misc]
    """Words (batch, source) and (batch, target) to the scores of each next word, (batch, target, words).

    The embedding's weight is one parameter, looked up for both sides and multiplied for the scores.
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

        What is added to an attention's scores hides the padding of sources, (batch, 1, 1, source), and of targets what
        comes later, (1, 1, target, target).
        """
        memory = self.embed(F, source, positions)
        for block in self.encoder:
            memory = block(memory, hidden)
        x = self.embed(F, given, positions)
        for block in self.decoder:
            x = block(x, later, memory, hidden)
        return self.scores(x)

    def embed(self, F: Any, words: Any, positions: Any) -> Any:  # noqa: N803
        """Return the scaled vectors of words and their positions."""
        scaled = self.embedding(words) * self.scale
        return self.dropout(F.broadcast_add(scaled, F.slice_like(positions, scaled, axes=(1,))))


def dense(inputs: int, outputs: int, **more: Any) -> nn.Dense:
    """Return a dense layer for each place of a batch."""
    return nn.Dense(outputs, in_units=inputs, flatten=False, **more)


def layer_norm(width: int) -> nn.LayerNorm:
    """Return a normalization over the width."""
    return nn.LayerNorm(epsilon=NORM_EPSILON, in_channels=width)


def by_head(F: Any, x: Any) -> Any:  # noqa: N803
    """Return (batch, places, width) as (batch × heads, places, width of a head)."""
    return F.reshape(F.transpose(F.reshape(x, (0, 0, -4, HEADS, -1)), (0, 2, 1, 3)), (-3, 0, 0))
