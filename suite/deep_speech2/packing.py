"""The positions of a batch's frames in its padded arrays, and what a step on the batch consumes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.data.speech import RATE, STRIDE, Utterances, halved

SECONDS_A_FRAME = STRIDE / RATE


@dataclass(frozen=True, slots=True)
class Packing:
    """The positions of utterances after the convolutions, without padding, the longest utterance first.

    Packed arrays hold all positions of the first time, then those of the second, and so on. `running`, (times,), counts
    the utterances that have not ended at each time. `places`, (packed,), is the index of each packed position in arrays
    of (times × batch). `packed`, (times, batch), is the inverse, with 0 at padding.
    """

    lengths: NDArray[np.int32]  # (batch,), number of positions without padding
    running: NDArray[np.int64]
    places: NDArray[np.int64]
    packed: NDArray[np.int64]


def packing(frames: Sequence[int] | NDArray[np.int32]) -> Packing:
    """Return the packing of utterances with these numbers of frames, the longest first."""
    lengths = np.array([halved(int(each)) for each in frames], np.int32)
    true = np.arange(lengths[0])[:, None] < lengths
    places = np.flatnonzero(true)
    packed = np.zeros(true.shape, np.int64)
    packed[true] = np.arange(len(places))
    return Packing(lengths, true.sum(1), places, packed)


def consumed(batch: Utterances) -> Consumed:
    """Return what a step on a batch consumes: seconds of audio, and in addition utterances."""
    count, longest = batch.spectrograms.shape[:2]
    padding = count * longest - int(batch.frames.sum())
    return Consumed(
        batch.seconds,
        also={"utterances": count},
        padding={"seconds of audio": SECONDS_A_FRAME * padding},
        lengths={"frames": longest},
    )
