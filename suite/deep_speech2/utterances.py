"""The utterances a run trains on: those of a folder, or synthetic ones (noise with transcripts of random symbols).

Synthetic durations follow train-clean-100: 28,539 utterances, 100.6 hours (Panayotov et al., 2015), from 1.4 to 24.5 s,
12.7 s in the mean. k2-fsa's icefall publishes quantiles of the subset played at 0.9, 1 and 1.1 of its speed
(egs/librispeech/ASR/local/display_manifest_statistics.py). The quantiles here are solved from those: played at these
speeds, our durations have the published quantiles within 0.15 s. A transcript has 14.5 symbols a second: the subset has
about 990,000 words in 100.6 hours, which is 2.7 words a second of 5.3 letters each, including the space.

As with a real data set, the utterances of a batch have about the same duration: their LibriSpeech durations lie within
one second, like the buckets of MXNet's `example/speech_recognition`. Each quarter of the durations gives one batch, in
an order drawn from the seed, so that a period of four batches has about the mean duration.
"""

from collections.abc import Iterator
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.data import speech
from tbdprof.suite.data.speech import RATE, Utterance, Utterances, frame_count
from tbdprof.suite.workload import PERIOD, Config

# Quantiles of train-clean-100: the durations (in seconds) that these shares of its utterances do not exceed.
SHARES = (0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 1)
SECONDS = (1.4, 2.1, 2.2, 2.5, 4.2, 6.4, 12.0, 14.2, 15.2, 15.7, 15.9, 16.6, 16.7, 17.0, 24.5)
SYMBOLS_A_SECOND = 14.5

_DURATIONS, _SOUND = 1, 3  # joined to the seed, so that each purpose draws its own random numbers

Doubles = NDArray[np.float64]


def durations(batch_size: int, longest: int, seed: int) -> list[Doubles]:
    """Return the durations in seconds of the utterances in each batch of a period, the longest first."""
    random = np.random.default_rng((seed, _DURATIONS))
    shares = (random.permutation(PERIOD) + random.random(PERIOD)) / PERIOD
    scale = longest / SECONDS[-1]
    return [scale * np.sort(_near(share, batch_size, random))[::-1] for share in shares]


def frames(config: Config) -> list[list[int]]:
    """Return the number of frames of the utterances in each batch of a period, the longest first."""
    found = durations(config.batch_size, int(config.options["longest"]), config.seed)
    return [[frame_count(round(RATE * seconds)) for seconds in batch] for batch in found]


def batches(config: Config) -> Iterator[Utterances]:
    """Return endless batches: those of the data set, or a period of synthetic ones, repeated."""
    if config.data is None:
        return cycle(synthetic(config))
    from tbdprof.suite.data import librispeech

    return librispeech.batches(config.data, config.batch_size, int(config.options["longest"]), config.seed)


def synthetic(config: Config) -> list[Utterances]:
    """Return the synthetic batches of one period."""
    random = np.random.default_rng((config.seed, _SOUND))
    found = durations(config.batch_size, int(config.options["longest"]), config.seed)
    return [speech.batch([_utterance(seconds, random) for seconds in each]) for each in found]


def _near(share: float, count: int, random: np.random.Generator) -> Doubles:
    """Return durations in the same whole second as the quantile of a share."""
    second = np.floor(np.interp(share, SHARES, SECONDS))
    low, high = np.interp([second, second + 1], SECONDS, SHARES)
    return np.interp(random.uniform(low, high, count), SHARES, SECONDS)


def _utterance(seconds: float, random: np.random.Generator) -> Utterance:
    """Return noise, drawn directly as a spectrogram, with a random transcript."""
    samples = round(RATE * seconds)
    sound = random.standard_normal((frame_count(samples), speech.BINS), dtype=np.float32)
    symbols = random.integers(1, len(speech.SYMBOLS), max(1, round(SYMBOLS_A_SECOND * seconds)), np.int32)
    return Utterance(sound, symbols, samples / RATE)
