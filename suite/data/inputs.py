"""Mini-batches in numpy, synthetic (drawn from a seed) or from a data set: the same bytes in every framework."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.integer[Any]]

_Batch = TypeVar("_Batch")
_OnDevice = TypeVar("_OnDevice")

_IMAGES = 1  # joined to the seed, so that batches and initial weights draw different random numbers


@dataclass(frozen=True, slots=True)
class ImageBatch:
    """Normalized color images, (batch, 3, height, width), and the class of each, (batch,)."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def image_batch(batch_size: int, image_size: int, classes: int, seed: int) -> ImageBatch:
    """Return square images of standard normal pixels, like normalized ImageNet images, and uniform labels."""
    generator = np.random.default_rng((seed, _IMAGES))
    images = generator.standard_normal((batch_size, 3, image_size, image_size), dtype=np.float32)
    return ImageBatch(images, generator.integers(classes, size=batch_size))


@dataclass(frozen=True, slots=True)
class DetectionBatch:
    """One normalized color image, (1, 3, height, width), and the objects in it.

    Boxes, (objects, 4), are left, top, right, bottom in pixels of this image. Classes, (objects,), count from 1; 0 is
    the background.
    """

    images: NDArray[np.float32]
    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pictures:
    """Color images without labels, (batch, 3, height, width), from -1 to 1."""

    images: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SentencePairs:
    """Sentences and their translations as word numbers, each padded to the longest sentence of its side.

    A source, (batch, longest source), consists of its words. A target, (batch, longest target), consists of its words
    and then `END`. A decoder receives `START` and the target without its last position, and must predict the target.
    Lengths, (batch,), count the words without padding, including a target's `END`. Padding is `END`.
    """

    source: NDArray[np.int32]
    source_lengths: NDArray[np.int32]
    target: NDArray[np.int32]
    target_lengths: NDArray[np.int32]


UNKNOWN, START, END = 0, 1, 2  # the special tokens, first in every vocabulary
MARKS = 3  # number of special tokens before the words


def collate(sources: Sequence[Numbers], targets: Sequence[Numbers]) -> SentencePairs:
    """Return a batch of sentences given as word numbers; targets get their `END` here."""
    ended = [np.append(each, END) for each in targets]
    return SentencePairs(_filled(sources), _counts(sources), _filled(ended), _counts(ended))


def feed(batches: Iterable[_Batch], convert: Callable[[_Batch], _OnDevice], *, kept: int) -> Iterator[_OnDevice]:
    """Yield batches as a framework's arrays: each as it comes, or only the first `kept`, converted once and reused."""
    if kept:
        return cycle([convert(batch) for batch in islice(batches, kept)])
    return map(convert, batches)


def _filled(sentences: Sequence[Numbers]) -> NDArray[np.int32]:
    """Return sentences as rows, padded with `END`."""
    rows = np.full((len(sentences), max(map(len, sentences))), END, np.int32)
    for row, words in zip(rows, sentences, strict=True):
        row[: len(words)] = words
    return rows


def _counts(sentences: Sequence[Numbers]) -> NDArray[np.int32]:
    return np.array([len(words) for words in sentences], np.int32)
