"""The Transformer's network in PyTorch."""

from math import sqrt

import torch
from torch import Tensor, nn

from tbdprof.suite.transformer.architecture import HEADS, NORM_EPSILON, Sizes
from tbdprof.suite.transformer.initial import positions
from tbdprof.suite.transformer.sentences import PLACES


class Attention(nn.Module):
    """Attention of several heads, that share the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return what each place of x takes from those of memory that a mask leaves; without one, none after its own.

        torch's own attention computes both products and the softmax between them in one operator where it has one.
        """
        query, key, value = by_head(self.query(x)), by_head(self.key(memory)), by_head(self.value(memory))
        attended = nn.functional.scaled_dot_product_attention(query, key, value, mask, is_causal=mask is None)
        output: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return output


class EncoderBlock(nn.Module):
    """Attention to the source and two dense layers, each with a normalized residual connection around it."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(sizes.width)
        self.attention_norm = nn.LayerNorm(sizes.width, NORM_EPSILON)
        self.inner = nn.Linear(sizes.width, sizes.inner)
        self.outer = nn.Linear(sizes.inner, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, NORM_EPSILON)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the block's output, (batch, source, width)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, x, mask)))
        output: Tensor = self.norm(x + self.dropout(self.outer(self.inner(x).relu())))
        return output


class DecoderBlock(nn.Module):
    """Attention to the target so far and to the source, and two dense layers, as in the encoder."""

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
        """Return the block's output, (batch, target, width)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, x)))
        x = self.cross_attention_norm(x + self.dropout(self.cross_attention(x, memory, mask)))
        output: Tensor = self.norm(x + self.dropout(self.outer(self.inner(x).relu())))
        return output


class Transformer(nn.Module):
    """Words (batch, source) and (batch, target) to the scores of each next word, (batch, target, words).

    The embedding's weight is one parameter, looked up for both sides and multiplied for the scores.
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
        """Return the scores, before any softmax; the mask, (batch, 1, 1, source), is true where a source has a word."""
        memory = self.embed(source)
        for block in self.encoder:
            memory = block(memory, mask)
        x = self.embed(given)
        for block in self.decoder:
            x = block(x, memory, mask)
        return nn.functional.linear(x, self.embedding.weight)

    def embed(self, words: Tensor) -> Tensor:
        """Return the scaled vectors of words and their positions."""
        scaled = self.embedding(words) * sqrt(self.embedding.embedding_dim)
        embedded: Tensor = self.dropout(scaled + self.positions[: words.shape[1]])
        return embedded


def by_head(x: Tensor) -> Tensor:
    """Return (batch, places, width) as (batch, heads, places, width of a head)."""
    return x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
