"""Groups sentences of similar length into batches, so that little padding is computed."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

BUCKETS = 5  # TensorFlow NMT's `num_buckets`, which its configuration for IWSLT15 sets
SHORTEST_BOUND = 8  # tensor2tensor's `min_length_bucket`
STEP = 1.1  # tensor2tensor's `length_bucket_step`


class Size(Protocol):
    """How many sentences a batch has, and how their lengths are divided into buckets.

    The length of a pair is that of its longer side, `END` included; `limit` is the greatest possible length.
    """

    def buckets(self, lengths: Ints, limit: int) -> Ints:
        """Return the bucket of each pair, counted from 0."""

    def sentences(self, bucket: int, limit: int) -> int:
        """Return how many sentences a batch of a bucket has."""


@dataclass(frozen=True, slots=True)
class Sentences:
    """Batches of a fixed number of sentences, in buckets of equal width: width 10 if sentences are cut at 50 words.

    Source: TensorFlow NMT (Luong, Brevdo and Zhao, 2017), `iterator_utils.get_iterator`.
    """

    count: int

    def buckets(self, lengths: Ints, limit: int) -> Ints:
        """Return the bucket of each pair; the last bucket holds all pairs beyond the bounds of the others."""
        width = -(-(limit - 1) // BUCKETS)  # counted in words, without `END`
        return np.minimum(lengths // width, BUCKETS)

    def sentences(self, bucket: int, limit: int) -> int:
        """Return the number of sentences, the same for every bucket."""
        return self.count


@dataclass(frozen=True, slots=True)
class Tokens:
    """Batches of at most a number of tokens per side, padding included; each bucket's bound is a tenth above the last.

    A batch has as many sentences as the budget holds at its bucket's upper bound, and at least one. Source:
    tensor2tensor (Vaswani et al., 2018, arXiv:1803.07416), `data_reader.batching_scheme`.
    """

    budget: int

    def buckets(self, lengths: Ints, limit: int) -> Ints:
        """Return the bucket of each pair; a length equal to a bound belongs to the next bucket, except at the limit."""
        return np.searchsorted(bounds(limit)[:-1], lengths, side="right").astype(np.int64)

    def sentences(self, bucket: int, limit: int) -> int:
        """Return how many sentences as long as the bucket's upper bound the budget holds."""
        return max(1, self.budget // bounds(limit)[bucket])


def bounds(limit: int) -> list[int]:
    """Return the upper bounds of the buckets in tokens, in rising order up to the limit."""
    found, bound = list[int](), SHORTEST_BOUND
    while bound < limit:
        found.append(bound)
        bound = max(bound + 1, int(bound * STEP))
    return [*found, limit]
