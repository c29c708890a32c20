"""The text that both translators are trained on: batches of sentence pairs, synthetic or a data set's.

Synthetic lengths are a fit, not a data set's histogram: a source's length is log-normal, and a target's is the source's
times a log-normal ratio. The means are published:

- IWSLT15: 2.7 million English and 3.3 million Vietnamese words in 133 thousand pairs (Luong and Manning, 2015, the
  Stanford systems at IWSLT), so 20.3 and 24.8 words. The TBD paper (Zhu et al., 2018, arXiv:1803.06905), table III,
  has 20-30.
- WMT-14: 4,500,966 pairs of 132,886,171 English and 137,628,246 German subwords, an end in each sentence counted, as
  fairseq's preprocessing (Ott et al., 2018, arXiv:1806.00187) prints for this text in 32,000 subwords; without the
  ends 28.5 and 29.6. In words these are 116 and 110 million (Luong et al., 2015, arXiv:1508.04025).

We found no published spread, and measured it on the 2,821 pairs of tst2012 and tst2013 in the IWSLT15 release: the
logarithm of an English sentence's words deviates by 0.635, that of the ratio of Vietnamese words to them by 0.205. The
fit has their 5th, 50th and 95th percentile within a word (6, 16, 44). WMT-14 has the same spread here, for want of
a measured one: 89 % of its sources are then within 50, where table III has "up to 50 words (most sentences)".

Words are drawn with a frequency of one over their rank (Zipf, 1949), each without regard to the others.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.buckets import Ints, Sentences, Size, Tokens
from tbdprof.suite.inputs import END, SentencePairs
from tbdprof.suite.workload import Config

__all__ = [
    "IWSLT15",
    "MARKS",
    "WMT14",
    "Corpus",
    "Sentences",
    "Size",
    "Tokens",
    "batches",
    "collate",
    "consumed",
    "lengths",
    "synthetic",
]

MARKS = 3  # UNKNOWN, START and END come before the words
SPREAD = 0.635  # deviation of the logarithm of a source's length
RATIO_SPREAD = 0.205  # deviation of the logarithm of a target's length over its source's
POOL = 20_000  # pairs drawn at least, of which the synthetic batches are chosen

_PAIRS = 4  # beside the seed, so that text, images and initial weights of one seed are drawn apart

Words = NDArray[np.int32]
Numbers = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Corpus:
    """A parallel text, as a model reads it."""

    dataset: str  # its name in `datasets.DATASETS`
    source_words: int  # rows of the model's vocabulary, those of the three marks included
    target_words: int
    longest: int  # words of a sentence; a target's `END` comes on top
    source_mean: float  # words of a sentence, before any is cut or left out
    target_mean: float
    cuts: bool  # a longer sentence is cut, as TensorFlow NMT does; else its pair is left out, as tensor2tensor does
    subwords: bool  # words are subwords of one vocabulary that both sides share

    @property
    def limit(self) -> int:
        """The greatest length of a side: of a target with its `END`."""
        return self.longest + 1


# Cut at 50 words as TensorFlow NMT's configuration for IWSLT15 does (`src_max_len`, `tgt_max_len`).
IWSLT15 = Corpus("IWSLT15", 17_191, 7_709, 50, 2.7e6 / 133e3, 3.3e6 / 133e3, cuts=True, subwords=False)
# Pairs beyond 100 subwords, of which the fit has 1.8 %, are left out: our choice, so that one rare batch does not
# decide how much memory a run needs; tensor2tensor leaves out those beyond 256.
WMT14 = Corpus(
    "WMT-14",
    37_000,
    37_000,
    100,
    132_886_171 / 4_500_966 - 1,
    137_628_246 / 4_500_966 - 1,
    cuts=False,
    subwords=True,
)


def batches(config: Config, corpus: Corpus, size: Size, period: int) -> Iterator[SentencePairs]:
    """Return the endless batches a configuration asks for: a data set's, or the seed's `period` in a cycle."""
    if config.data is None:
        return cycle(synthetic(corpus, size, config.seed, period))
    from tbdprof.suite.parallel_text import batches as read  # which a synthetic run does without

    return read(config.data, corpus, size, config.seed)


def synthetic(corpus: Corpus, size: Size, seed: int, period: int) -> tuple[SentencePairs, ...]:
    """Return `period` batches, the same bytes from one seed in every framework.

    They stand for all: of the batches that a pool of pairs makes, sorted by length, those at even distances are
    taken, in a random order.
    """
    generator = np.random.default_rng((seed, _PAIRS))
    chosen = _chosen(corpus, size, period, generator)
    return tuple(_drawn(each, corpus, generator) for each in chosen)


def lengths(corpus: Corpus, count: int, generator: np.random.Generator) -> Ints:
    """Return the words of so many sources and targets, (count, 2), without `END`: a target has no fewer than one."""
    source = math.log(corpus.source_mean) - SPREAD**2 / 2 + SPREAD * generator.standard_normal(count)
    ratio = math.log(corpus.target_mean / corpus.source_mean) - RATIO_SPREAD**2 / 2
    target = source + ratio + RATIO_SPREAD * generator.standard_normal(count)
    drawn: Ints = np.maximum(1, np.rint(np.exp(np.stack([source, target], 1)))).astype(np.int64)
    kept: Ints = np.minimum(drawn, corpus.longest) if corpus.cuts else drawn[(drawn <= corpus.longest).all(1)]
    return kept


def collate(sources: Sequence[Numbers], targets: Sequence[Numbers]) -> SentencePairs:
    """Return a batch of sentences given as their words; targets get their `END` here."""
    ended = [np.append(each, END) for each in targets]
    return SentencePairs(_filled(sources), _counts(sources), _filled(ended), _counts(ended))


def consumed(batch: SentencePairs, unit: Literal["sentences", "tokens"]) -> Consumed:
    """Return what a step on a batch consumes, counted in a unit and in the other besides.

    Tokens are the words of both sides, a target's `END` with them, as TensorFlow NMT counts its words per second; so
    for both translators. Padding is counted in tokens of both sides too.
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
        if len(full) >= 4 * period:  # so that the places at even distances are apart
            break
        pool *= 2
    full.sort(key=lambda pairs: (int(pairs.max()), int(pairs.sum())))
    places = (np.arange(period) + 0.5) * len(full) / period
    return [full[int(place)] for place in generator.permutation(places)]


def _full(pairs: Ints, corpus: Corpus, size: Size) -> list[Ints]:
    """Return the full batches that pairs of such lengths make, bucket after bucket."""
    buckets = size.buckets(np.maximum(pairs[:, 0], pairs[:, 1] + 1), corpus.limit)
    found = list[Ints]()
    for bucket in np.unique(buckets):
        inside, count = pairs[buckets == bucket], size.sentences(int(bucket), corpus.limit)
        found += [inside[start : start + count] for start in range(0, len(inside) - count + 1, count)]
    return found


def _drawn(pairs: Ints, corpus: Corpus, generator: np.random.Generator) -> SentencePairs:
    """Return a batch of words drawn for sentences of such lengths."""
    sides = zip(pairs.T, (corpus.source_words, corpus.target_words), strict=True)
    sources, targets = ([_words(int(count), rows, generator) for count in side] for side, rows in sides)
    return collate(sources, targets)


def _words(count: int, rows: int, generator: np.random.Generator) -> Words:
    """Return words of a vocabulary, each as often as one over its rank."""
    shares = np.cumsum(1 / np.arange(1, rows - MARKS + 1))
    ranks = np.searchsorted(shares, generator.random(count) * shares[-1], side="right")
    words: Words = (MARKS + ranks).astype(np.int32)
    return words


def _filled(sentences: Sequence[Numbers]) -> Words:
    """Return sentences as rows, filled up with `END`."""
    rows = np.full((len(sentences), max(map(len, sentences))), END, np.int32)
    for row, words in zip(rows, sentences, strict=True):
        row[: len(words)] = words
    return rows


def _counts(sentences: Sequence[Numbers]) -> Words:
    return np.array([len(words) for words in sentences], np.int32)
