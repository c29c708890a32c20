"""The text that both translators are trained on: batches of sentence pairs, synthetic or from a data set.

Synthetic lengths follow a fitted distribution, not a data set's histogram. A source's length is log-normal, and a
target's length is the source's times a log-normal ratio. `corpora` has the published means and their sources.

We found no published spread, so we measured it on the 2,821 pairs of tst2012 and tst2013 in the IWSLT15 release. The
logarithm of an English sentence's length in words has a standard deviation of 0.635; the logarithm of the ratio of
Vietnamese to English words has one of 0.205. The fit matches their 5th, 50th and 95th percentile within a word (6, 16,
44). We measured no spread for WMT-14 and use the same one: then 89 % of its sources have at most 50 words, where the
TBD paper's table III says "up to 50 words (most sentences)".

Words are drawn independently, with a frequency of one over their rank (Zipf, 1949).
"""

import math
from collections.abc import Iterator
from itertools import cycle
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.data.inputs import MARKS, SentencePairs, collate
from tbdprof.suite.data.text.buckets import Ints, Size
from tbdprof.suite.data.text.corpora import Corpus
from tbdprof.suite.workload import Config

SPREAD = 0.635  # standard deviation of the logarithm of a source's length
RATIO_SPREAD = 0.205  # standard deviation of the logarithm of a target's length over its source's
POOL = 20_000  # the least number of drawn pairs from which the synthetic batches are chosen

_PAIRS = 4  # joined to the seed, so that text, images and initial weights draw different random numbers

Words = NDArray[np.int32]


def batches(config: Config, corpus: Corpus, size: Size, period: int) -> Iterator[SentencePairs]:
    """Return the endless batches of a configuration: a data set's, or a cycle of `period` synthetic ones."""
    if config.data is None:
        return cycle(synthetic(corpus, size, config.seed, period))
    from tbdprof.suite.data.text.parallel_text import batches as read  # not needed by a synthetic run

    return read(config.data, corpus, size, config.seed)


def synthetic(corpus: Corpus, size: Size, seed: int, period: int) -> tuple[SentencePairs, ...]:
    """Return `period` batches, the same bytes from one seed in every framework.

    They represent all lengths: the batches of a pool of pairs are sorted by length, those at even distances are taken,
    and their order is random.
    """
    generator = np.random.default_rng((seed, _PAIRS))
    chosen = _chosen(corpus, size, period, generator)
    return tuple(_drawn(each, corpus, generator) for each in chosen)


def lengths(corpus: Corpus, count: int, generator: np.random.Generator) -> Ints:
    """Return the lengths in words of `count` sources and targets, (count, 2), without `END`; each is at least one."""
    source = math.log(corpus.source_mean) - SPREAD**2 / 2 + SPREAD * generator.standard_normal(count)
    ratio = math.log(corpus.target_mean / corpus.source_mean) - RATIO_SPREAD**2 / 2
    target = source + ratio + RATIO_SPREAD * generator.standard_normal(count)
    drawn: Ints = np.maximum(1, np.rint(np.exp(np.stack([source, target], 1)))).astype(np.int64)
    kept: Ints = np.minimum(drawn, corpus.longest) if corpus.cuts else drawn[(drawn <= corpus.longest).all(1)]
    return kept


def consumed(batch: SentencePairs, unit: Literal["sentences", "tokens"]) -> Consumed:
    """Return what a step on a batch consumes, counted in one unit, and in the other unit in addition.

    Tokens are the words of both sides, including a target's `END`, as TensorFlow NMT counts its words per second. Both
    translators count them so. Padding is counted in tokens of both sides too.
    """
    tokens = int(batch.source_lengths.sum() + batch.target_lengths.sum())
    counted = {"sentences": len(batch.source_lengths), "tokens": tokens}
    return Consumed(
        counted.pop(unit),
        also=counted,
        padding={"tokens": batch.source.size + batch.target.size - tokens},
        lengths={"source": batch.source.shape[1], "target": batch.target.shape[1]},
    )


def _chosen(corpus: Corpus, size: Size, period: int, generator: np.random.Generator) -> list[Ints]:
    """Return the lengths of the pairs of each batch."""
    pool = POOL
    while True:
        full = _full(lengths(corpus, pool, generator), corpus, size)
        if len(full) >= 4 * period:  # so that no two of the chosen batches are neighbours
            break
        pool *= 2
    full.sort(key=lambda pairs: (int(pairs.max()), int(pairs.sum())))
    places = (np.arange(period) + 0.5) * len(full) / period
    return [full[int(place)] for place in generator.permutation(places)]


def _full(pairs: Ints, corpus: Corpus, size: Size) -> list[Ints]:
    """Return the full batches of pairs with these lengths, bucket by bucket."""
    buckets = size.buckets(np.maximum(pairs[:, 0], pairs[:, 1] + 1), corpus.limit)
    found = list[Ints]()
    for bucket in np.unique(buckets):
        inside, count = pairs[buckets == bucket], size.sentences(int(bucket), corpus.limit)
        found += [inside[start : start + count] for start in range(0, len(inside) - count + 1, count)]
    return found


def _drawn(pairs: Ints, corpus: Corpus, generator: np.random.Generator) -> SentencePairs:
    """Return a batch of random words for sentences of these lengths."""
    sides = zip(pairs.T, (corpus.source_words, corpus.target_words), strict=True)
    sources, targets = ([_words(int(count), rows, generator) for count in side] for side, rows in sides)
    return collate(sources, targets)


def _words(count: int, rows: int, generator: np.random.Generator) -> Words:
    """Return words of a vocabulary, each with a frequency of one over its rank."""
    shares = np.cumsum(1 / np.arange(1, rows - MARKS + 1))
    ranks = np.searchsorted(shares, generator.random(count) * shares[-1], side="right")
    words: Words = (MARKS + ranks).astype(np.int32)
    return words
