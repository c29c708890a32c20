"""The sentences that a run trains on, and the network's inputs made from them."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.data.inputs import END, START, SentencePairs
from tbdprof.suite.data.text import translation
from tbdprof.suite.data.text.buckets import Tokens
from tbdprof.suite.data.text.corpora import WMT14, Corpus
from tbdprof.suite.transformer.architecture import Shape
from tbdprof.suite.workload import PERIOD, Config

Words = NDArray[np.int32]

TOKENS = 32  # of each side of a batch, for each unit of the batch size
PLACES = WMT14.limit  # of the longest sentence, a target's end among them


def batches(config: Config) -> Iterator[SentencePairs]:
    """Return endless batches: the data set's, or a cycle of synthetic ones."""
    return translation.batches(config, corpus(config), budget(config), PERIOD)


def shapes(config: Config) -> list[Shape]:
    """Return the shapes of the synthetic batches of one period."""
    period = translation.synthetic(corpus(config), budget(config), config.seed, PERIOD)
    return [Shape(len(each.source), each.source.shape[1], each.target.shape[1]) for each in period]


def corpus(config: Config) -> Corpus:
    """Return the facts of the data set, with as many words as the embedding has rows."""
    words = int(config.options["vocabulary"])
    return replace(WMT14, source_words=words, target_words=words)


def budget(config: Config) -> Tokens:
    """Return the largest number of positions of a batch on each side."""
    return Tokens(TOKENS * config.batch_size)


def given(target: Words) -> Words:
    """Return the decoder's input for a target: `START`, then each word but the last."""
    return np.concatenate([np.full_like(target[:, :1], START), target[:, :-1]], 1)


def filled(lengths: Words, longest: int) -> NDArray[np.bool_]:
    """Return which positions hold a word and not padding, (batch, longest)."""
    return np.arange(longest) < lengths[:, None]


def later(places: int) -> NDArray[np.bool_]:
    """Return, for each position of a target, which positions come after it, (places, places)."""
    return np.triu(np.ones((places, places), bool), 1)


def greedily(likeliest: Callable[[SentencePairs], Words], source: Words, lengths: Words, longest: int) -> Words:
    """Return translations, (batch, longest), in which each word is the likeliest one after those before it.

    `likeliest` returns the likeliest word at each position of a batch's targets, (batch, target), without looking at
    later words. All its targets have the same length, so that no function is traced again.
    """
    target = np.full((len(source), longest), END, np.int32)
    full = np.full(len(source), longest, np.int32)
    for place in range(longest):
        target[:, place] = likeliest(SentencePairs(source, lengths, target, full))[:, place]
        if (target == END)[:, : place + 1].any(1).all():
            break
    return target
