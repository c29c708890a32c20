"""The utterances a run trains on: those of a folder, or synthetic ones, noise with transcripts of random symbols.

Synthetic durations follow train-clean-100: 28,539 utterances, 100.6 hours (Panayotov et al., 2015), from 1.4 to 24.5 s
and 12.7 s in the mean. The quantiles are solved from those that k2-fsa's icefall publishes of the subset played at 0.9,
1 and 1.1 of its speed (egs/librispeech/ASR/local/display_manifest_statistics.py): played so, these durations have the
published quantiles within 0.15 s. A transcript has 14.5 symbols a second: the subset's about 990,000 words in 100.6
hours are 2.7 a second, of 5.3 letters, the space among them.

As of a real data set, batches are of utterances of about the same duration: within a second of LibriSpeech's, as the
buckets of MXNet's `example/speech_recognition` are. One batch comes of each quarter of the durations, in an order drawn
from the seed, so that a period of four has about the mean duration.
"""

from collections.abc import Iterator
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.data import speech
from tbdprof.suite.data.speech import RATE, Utterance, Utterances, frame_count
from tbdprof.suite.workload import PERIOD, Config

# Of train-clean-100: seconds that a share of its utterances does not exceed.
SHARES = (0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 1)
SECONDS = (1.4, 2.1, 2.2, 2.5, 4.2, 6.4, 12.0, 14.2, 15.2, 15.7, 15.9, 16.6, 16.7, 17.0, 24.5)
SYMBOLS_A_SECOND = 14.5

_DURATIONS, _SOUND = 1, 3  # joined to the seed, so that each purpose draws its own random numbers

Doubles = NDArray[np.float64]


def durations(batch_size: int, longest: int, seed: int) -> list[Doubles]:
    """Return the seconds of the utterances of each of a period's batches, the longest first."""
    random = np.random.default_rng((seed, _DURATIONS))
    shares = (random.permutation(PERIOD) + random.random(PERIOD)) / PERIOD
    scale = longest / SECONDS[-1]
    return [scale * np.sort(_near(share, batch_size, random))[::-1] for share in shares]


def frames(config: Config) -> list[list[int]]:
    """Return the frames of the utterances of each of a period's batches, the longest first."""
    found = durations(config.batch_size, int(config.options["longest"]), config.seed)
    return [[frame_count(round(RATE * seconds)) for seconds in batch] for batch in found]


def batches(config: Config) -> Iterator[Utterances]:
    """Return batches without end: the data set's, or a period's synthetic ones again and again."""
    if config.data is None:
        return cycle(synthetic(config))
    from tbdprof.suite.data import librispeech

    return librispeech.batches(config.data, config.batch_size, int(config.options["longest"]), config.seed)


def synthetic(config: Config) -> list[Utterances]:
    """Return a period's synthetic batches."""
    random = np.random.default_rng((config.seed, _SOUND))
    found = durations(config.batch_size, int(config.options["longest"]), config.seed)
    return [speech.batch([_utterance(seconds, random) for seconds in each]) for each in found]


def _near(share: float, count: int, random: np.random.Generator) -> Doubles:
    """Return durations within the whole second in which that of a share lies."""
    second = np.floor(np.interp(share, SHARES, SECONDS))
    low, high = np.interp([second, second + 1], SECONDS, SHARES)
    return np.interp(random.uniform(low, high, count), SHARES, SECONDS)


def _utterance(seconds: float, random: np.random.Generator) -> Utterance:
    """Return noise, whose spectrogram is drawn as it is, with a random transcript."""
    samples = round(RATE * seconds)
    sound = random.standard_normal((frame_count(samples), speech.BINS), dtype=np.float32)
    symbols = random.integers(1, len(speech.SYMBOLS), max(1, round(SYMBOLS_A_SECOND * seconds)), np.int32)
    return Utterance(sound, symbols, samples / RATE)
