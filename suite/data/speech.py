"""Speech: batches of utterances, the spectrogram of sound, and the symbols of transcripts.

The spectrogram is that of Amodei et al., 2015 (arXiv:1512.02595), as MXNet's `example/speech_recognition` and
deepspeech.pytorch compute it. It has Hamming windows of 20 ms every 10 ms. Each value is the logarithm of one plus the
magnitude of a frequency. An utterance is then normalized to mean 0 and deviation 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

RATE = 16_000  # samples a second: LibriSpeech's
WINDOW = 320  # samples, 20 ms
STRIDE = 160  # samples, 10 ms
BINS = WINDOW // 2 + 1
BLANK = 0  # CTC's symbol for nothing
SYMBOLS = "_'ABCDEFGHIJKLMNOPQRSTUVWXYZ "  # the blank first

Floats = NDArray[np.float32]
Whole = NDArray[np.int32]
Value = TypeVar("Value", np.float32, np.int32)


@dataclass(frozen=True, slots=True)
class Utterance:
    """An utterance: its spectrogram (frames, 161), its transcript as symbols (length,), and its duration."""

    spectrogram: Floats
    transcript: Whole
    seconds: float


@dataclass(frozen=True, slots=True)
class Utterances:
    """A batch of utterances, the longest first, each padded to the longest.

    Spectrograms, (batch, frames, 161), are padded with zeros, which is the mean of each spectrogram. Transcripts,
    (batch, symbols), are padded with blanks. `frames` and `lengths`, (batch,), are the lengths without padding.
    `seconds` is the duration of all utterances together.
    """

    spectrograms: Floats
    frames: Whole
    transcripts: Whole
    lengths: Whole
    seconds: float


def batch(utterances: Sequence[Utterance]) -> Utterances:
    """Return utterances as a batch, the longest first."""
    ordered = sorted(utterances, key=lambda each: len(each.spectrogram), reverse=True)
    return Utterances(
        filled([each.spectrogram for each in ordered]),
        np.array([len(each.spectrogram) for each in ordered], np.int32),
        filled([each.transcript for each in ordered]),
        np.array([len(each.transcript) for each in ordered], np.int32),
        sum(each.seconds for each in ordered),
    )


def filled(arrays: Sequence[NDArray[Value]]) -> NDArray[Value]:
    """Return arrays stacked into one, each padded with zeros along its first axis to the longest."""
    shape = (len(arrays), max(len(each) for each in arrays), *arrays[0].shape[1:])
    whole = np.zeros(shape, arrays[0].dtype)
    for row, each in zip(whole, arrays, strict=True):
        row[: len(each)] = each
    return whole


def frame_count(samples: int) -> int:
    """Return how many windows lie within a number of samples."""
    return 0 if samples < WINDOW else 1 + (samples - WINDOW) // STRIDE


def spectrogram(samples: NDArray[Any]) -> Floats:
    """Return the spectrogram (frames, 161) of sound from -1 to 1 that is at least a window long."""
    windows = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::STRIDE]
    magnitudes = np.abs(np.fft.rfft(windows * np.hamming(WINDOW), axis=1))
    logarithms = np.log1p(magnitudes)
    deviation = logarithms.std()
    normalized = (logarithms - logarithms.mean()) / (deviation if deviation > 0 else 1)
    return np.asarray(normalized, np.float32)


def transcribed(text: str) -> Whole:
    """Return a transcript as symbols; raises ValueError for a character that is not a symbol."""
    return np.array([SYMBOLS.index(character, 1) for character in text], np.int32)


def text(symbols: Whole) -> str:
    """Return symbols as text."""
    return "".join(SYMBOLS[symbol] for symbol in symbols)


def needed(transcript: Whole) -> int:
    """Return the least number of positions CTC needs to align a transcript: equal neighbours need a blank between."""
    return len(transcript) + int(np.count_nonzero(transcript[1:] == transcript[:-1]))


def halved(frames: int) -> int:
    """Return how many positions a convolution of stride 2 makes from frames, padded by half a kernel at both ends."""
    return ceil(frames / 2)
