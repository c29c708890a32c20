"""The Transformer's network in PyTorch."""

from math import sqrt

import torch
from torch import Tensor, nn

from tbdprof.suite.transformer.architecture import HEADS, NORM_EPSILON, Sizes
from tbdprof.suite.transformer.initial import positions
from tbdprof.suite.transformer.sentences import PLACES


class Attention(nn.Module):
    """Multi-head attention; the heads divide the width among themselves."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return, for each position of `x`, what it attends to in `memory`.

        `mask` is true where attention is allowed; without a mask, a position attends to none after it. If torch has one
        operator for both matmuls and the softmax between them on this device, that one computes.
        """
        query, key, value = by_head(self.query(x)), by_head(self.key(memory)), by_head(self.value(memory))
        attended = nn.functional.scaled_dot_product_attention(query, key, value, mask, is_causal=mask is None)
        output: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return output


class EncoderBlock(nn.Module):
    """Attention to the source, then two dense layers; each part has a residual connection, which is then normalized."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(sizes.width)
        self.attention_norm = nn.LayerNorm(sizes.width, NORM_EPSILON)
        self.inner = nn.Linear(sizes.width, sizes.inner)
        self.outer = nn.Linear(sizes.inner, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, NORM_EPSILON)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the block's output, of shape (batch, source, width)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, x, mask)))
        output: Tensor = self.norm(x + self.dropout(self.outer(self.inner(x).relu())))
        return output


class DecoderBlock(nn.Module):
    """Attention to the target so far, then to the source, then two dense layers; normalized as in `EncoderBlock`."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(sizes.width)
        self.attention_norm = nn.LayerNorm(sizes.width, NORM_EPSILON)
        self.cross_attention = Attention(sizes.width)
        self.cross_attention_norm = nn.LayerNorm(sizes.width, NORM_EPSILON)
        self.inner = nn.Linear(sizes.width, sizes.inner)
        self.outer = nn.Linear(sizes.inner, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, NORM_EPSILON)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Return the block's output, of shape (batch, target, width)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, x)))
        x = self.cross_attention_norm(x + self.dropout(self.cross_attention(x, memory, mask)))
        output: Tensor = self.norm(x + self.dropout(self.outer(self.inner(x).relu())))
        return output


class Transformer(nn.Module):
    """Turns words (batch, source) and (batch, target) into the scores of each next word, (batch, target, vocabulary).

    The embedding's weight is one parameter. Its rows are looked up for both sides, and it is multiplied to give the
    scores.
    """

    positions: Tensor

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.register_buffer("positions", torch.from_numpy(positions(PLACES, sizes.width)), persistent=False)
        self.encoder = nn.ModuleList([EncoderBlock(sizes, dropout) for _ in range(sizes.layers)])
        self.decoder = nn.ModuleList([DecoderBlock(sizes, dropout) for _ in range(sizes.layers)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, mask: Tensor, given: Tensor) -> Tensor:
        """Return the scores, before any softmax; `mask`, (batch, 1, 1, source), is true where the source has a word."""
        memory = self.embed(source)
        for block in self.encoder:
            memory = block(memory, mask)
        x = self.embed(given)
        for block in self.decoder:
            x = block(x, memory, mask)
        return nn.functional.linear(x, self.embedding.weight)

    def embed(self, words: Tensor) -> Tensor:
        """Return the scaled vectors of words, plus the vectors of their positions."""
        scaled = self.embedding(words) * sqrt(self.embedding.embedding_dim)
        embedded: Tensor = self.dropout(scaled + self.positions[: words.shape[1]])
        return embedded


def by_head(x: Tensor) -> Tensor:
    """Return an array (batch, places, width) as (batch, heads, places, width of a head)."""
    return x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
