"""The sentences a run trains on, and what a network is given of them."""

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
    """Return batches without end: the data set's, or the synthetic ones in a cycle."""
    return translation.batches(config, corpus(config), budget(config), PERIOD)


def shapes(config: Config) -> list[Shape]:
    """Return the shapes of a period of a configuration's synthetic batches."""
    period = translation.synthetic(corpus(config), budget(config), config.seed, PERIOD)
    return [Shape(len(each.source), each.source.shape[1], each.target.shape[1]) for each in period]


def corpus(config: Config) -> Corpus:
    """Return what is known of the data set, with as many words as the embedding knows."""
    words = int(config.options["vocabulary"])
    return replace(WMT14, source_words=words, target_words=words)


def budget(config: Config) -> Tokens:
    """Return how many places a batch has at most on each side."""
    return Tokens(TOKENS * config.batch_size)


def given(target: Words) -> Words:
    """Return what the decoder is given to answer a target: the mark of a start, then each word but the last."""
    return np.concatenate([np.full_like(target[:, :1], START), target[:, :-1]], 1)


def filled(lengths: Words, longest: int) -> NDArray[np.bool_]:
    """Return where sentences are, and not padding: (batch, longest)."""
    return np.arange(longest) < lengths[:, None]


def later(places: int) -> NDArray[np.bool_]:
    """Return for each place of a target which others come after it: (places, places)."""
    return np.triu(np.ones((places, places), bool), 1)


def greedily(likeliest: Callable[[SentencePairs], Words], source: Words, lengths: Words, longest: int) -> Words:
    """Return translations, (batch, longest), of which each word is the likeliest after those before it.

    `likeliest` answers a batch by the likeliest word at each place of its targets, (batch, target). It is given targets
    of one length each time, so that no function is made anew, and does not look at what comes later.
    """
    target = np.full((len(source), longest), END, np.int32)
    full = np.full(len(source), longest, np.int32)
    for place in range(longest):
        target[:, place] = likeliest(SentencePairs(source, lengths, target, full))[:, place]
        if (target == END)[:, : place + 1].any(1).all():
            break
    return target
