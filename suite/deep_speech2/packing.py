"""Where the true frames of a batch lie in its padded arrays, and what a step consumes of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.data.speech import RATE, STRIDE, Utterances, halved

SECONDS_A_FRAME = STRIDE / RATE


@dataclass(frozen=True, slots=True)
class Packing:
    """The true places of utterances after the convolutions, the longest utterance first.

    Packed, all places of the first time stand first, then those of the second. `running`, (times,), is how many
    utterances are not over at a time; `places`, (packed,), where each lies in arrays of (times × batch); `packed`,
    (times, batch), is the other way around, with 0 for padding.
    """

    lengths: NDArray[np.int32]  # (batch,), of true places
    running: NDArray[np.int64]
    places: NDArray[np.int64]
    packed: NDArray[np.int64]


def packing(frames: Sequence[int] | NDArray[np.int32]) -> Packing:
    """Return where the places of utterances of so many frames are, the longest first."""
    lengths = np.array([halved(int(each)) for each in frames], np.int32)
    true = np.arange(lengths[0])[:, None] < lengths
    places = np.flatnonzero(true)
    packed = np.zeros(true.shape, np.int64)
    packed[true] = np.arange(len(places))
    return Packing(lengths, true.sum(1), places, packed)


def consumed(batch: Utterances) -> Consumed:
    """Return what a step on a batch consumes: seconds of audio, and utterances besides."""
    count, longest = batch.spectrograms.shape[:2]
    padding = count * longest - int(batch.frames.sum())
    return Consumed(
        batch.seconds,
        also={"utterances": count},
        padding={"seconds of audio": SECONDS_A_FRAME * padding},
        lengths={"frames": longest},
    )
