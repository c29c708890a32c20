"""The CTC loss computed from its definition, and the search for a transcript, in numpy; the learning check uses them.

After Graves et al., 2006, Connectionist Temporal Classification, section 4.1, computed in logarithms.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.data.speech import BLANK, Utterances, Whole, text
from tbdprof.suite.deep_speech2.packing import packing

BEAMS = 8  # prefixes of a transcript that the search follows


def losses(scores: NDArray[np.float64], batch: Utterances) -> list[float]:
    """Return the loss of each utterance from scores (times, batch, symbols)."""
    lengths = packing(batch.frames).lengths
    each: Iterable[tuple[int, Whole, int]] = zip(lengths, batch.transcripts, batch.lengths, strict=True)
    return [loss(scores[:times, row], said[:length]) for row, (times, said, length) in enumerate(each)]


def loss(scores: NDArray[np.float64], transcript: Whole) -> float:
    """Return the negative logarithm of a transcript's probability from scores (times, symbols)."""
    wide = scores.astype(np.float64)
    logarithms = wide - np.logaddexp.reduce(wide, axis=1, keepdims=True)
    # A path passes through a blank between symbols; between two different symbols it may skip the blank.
    path = np.full(2 * len(transcript) + 1, BLANK)
    path[1::2] = transcript
    skips = np.zeros(len(path), bool)
    skips[2:] = (path[2:] != BLANK) & (path[2:] != path[:-2])
    reached = np.full(len(path), -np.inf)
    reached[:2] = logarithms[0, path[:2]]
    for place in logarithms[1:]:
        before = np.logaddexp(reached, np.concatenate([[-np.inf], reached[:-1]]))
        twice = np.concatenate([[-np.inf, -np.inf], reached[:-2]])[: len(path)]
        reached = np.logaddexp(before, np.where(skips, twice, -np.inf)) + place[path]
    return -float(np.logaddexp.reduce(reached[-2:]))


def transcripts(scores: NDArray[Any], batch: Utterances) -> list[str]:
    """Return the likeliest transcript of each utterance from scores (times, batch, symbols)."""
    lengths = packing(batch.frames).lengths
    return [text(searched(scores[:length, row])) for row, length in enumerate(lengths)]


def searched(scores: NDArray[Any]) -> Whole:
    """Return the likeliest transcript from scores (times, symbols), found by a beam search over prefixes.

    After Hannun et al., 2014 (arXiv:1408.2873), algorithm 1, without a language model. Taking the likeliest symbol at
    each time is not enough: a symbol that may stand at either of two times may be the likeliest at neither.
    """
    wide = scores.astype(np.float64)
    probabilities = np.exp(wide - np.logaddexp.reduce(wide, axis=1, keepdims=True))
    found: dict[tuple[int, ...], tuple[float, float]] = {(): (1.0, 0.0)}  # probability to end in a blank, in a symbol
    for place in probabilities:
        following = defaultdict[tuple[int, ...], list[float]](lambda: [0.0, 0.0])
        likely = [int(symbol) for symbol in np.argsort(place)[-BEAMS:] if symbol != BLANK]
        for said, (blank, symbol) in found.items():
            following[said][0] += (blank + symbol) * place[BLANK]
            if said:
                following[said][1] += symbol * place[said[-1]]
            for new in likely:
                before = blank if said and said[-1] == new else blank + symbol
                following[(*said, new)][1] += before * place[new]
        best = sorted(following.items(), key=lambda each: -sum(each[1]))[:BEAMS]
        total = sum(sum(each) for _, each in best)
        found = {said: (each[0] / total, each[1] / total) for said, each in best}
    return np.array(max(found, key=lambda said: sum(found[said])), np.int32)
