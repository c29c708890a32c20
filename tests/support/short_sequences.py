"""Sequences of a quarter of their lengths: they still differ, and what is judged at each place does not need many.

Most of the time of a recurrent network's cell is what the profiler does for each operator, and every place has some.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from tbdprof.suite.data.text import translation
from tbdprof.suite.deep_speech2 import utterances

SHARE = 4


@contextmanager
def short() -> Iterator[None]:
    """Make the synthetic utterances and sentences of this process short for a while."""
    durations, chosen = utterances.durations, translation._chosen

    def shorter_durations(batch_size: int, longest: int, seed: int) -> list[utterances.Doubles]:
        return [each / SHARE for each in durations(batch_size, longest, seed)]

    def shorter_pairs(
        corpus: translation.Corpus, size: translation.Size, period: int, generator: np.random.Generator
    ) -> list[translation.Ints]:
        return [-(-each // SHARE) for each in chosen(corpus, size, period, generator)]

    with patch.object(utterances, "durations", shorter_durations), patch.object(translation, "_chosen", shorter_pairs):
        yield
