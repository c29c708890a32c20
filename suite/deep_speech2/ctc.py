"""The CTC loss by its definition, in numpy: for judging what was learned, and the frameworks' own.

After Graves et al., 2006, Connectionist Temporal Classification, section 4.1, in logarithms.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.deep_speech2.packing import packing
from tbdprof.suite.speech import BLANK, Utterances, Whole

Doubles = NDArray[np.float64]


def losses(scores: NDArray[np.float64], batch: Utterances) -> list[float]:
    """Return the loss of each utterance by scores (times, batch, symbols)."""
    lengths = packing(batch.frames).lengths
    each: Iterable[tuple[int, Whole, int]] = zip(lengths, batch.transcripts, batch.lengths, strict=True)
    return [loss(scores[:times, row], said[:length]) for row, (times, said, length) in enumerate(each)]


def loss(scores: NDArray[np.float64], transcript: Whole) -> float:
    """Return the negative logarithm of the probability of a transcript by scores (times, symbols)."""
    wide = scores.astype(np.float64)
    logarithms = wide - np.logaddexp.reduce(wide, axis=1, keepdims=True)
    # A path goes through blanks between the symbols; it may leave one out between two different symbols.
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
