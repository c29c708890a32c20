"""The learning check of translators: a small generated language, judged on sentences it was never trained on.

A sentence is a subject and two to six other words. Its translation begins with an ending that agrees with the subject's
number; then follow the substitutes of all words, in reverse order. So the first word of a translation depends on the
first word of the source, and the second on its last. A model that ignores the source, or only copies it, fails.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tbdprof.errors import UsageError
from tbdprof.suite.checks.learning import Build, Check, Learned, Point, Progress, Setting, configured
from tbdprof.suite.data.inputs import END, MARKS, Numbers, SentencePairs, collate
from tbdprof.suite.workload import Spec, Workload

BATCH = 32  # sentences in a step, whatever batch size the model's configuration has
LONGEST = 8  # words of a translation, without its `END`
WORDS = 23  # the least number of rows of each side's vocabulary
ABOVE_CHANCE = 20.0  # points of BLEU

_SUBJECTS, _OTHERS, _ENDINGS = 6, 12, 2
_FEWEST, _MOST = 2, 6  # words in addition to the subject
_HELD_OUT = 64  # sentences
_ONE_IN = 7  # one sentence in this many is held out from training
_POINTS = 4  # of the curve, after the first
_SUBSTITUTES, _TRAINED, _JUDGED = 20, 21, 22  # joined to the seed, so that each purpose draws its own random numbers

Sentence = tuple[int, ...]


class Translator(Workload, Protocol):
    """A translator whose learning can be checked; all arrays are numpy arrays."""

    def train(self, batch: SentencePairs) -> float:
        """Run one training step on a batch; return its mean loss over the target tokens, `END` included."""

    def predict(self, inputs: SentencePairs) -> NDArray[np.floating[Any]]:
        """Return the natural logarithm of the probability of each target token, (batch, longest target).

        Each token is predicted from the source and the true tokens before it, without dropout and label smoothing.
        Values at padding are not read.
        """

    def translate(
        self, source: NDArray[np.int32], source_lengths: NDArray[np.int32], longest: int
    ) -> NDArray[np.integer[Any]]:
        """Return greedy translations, token by token, (batch, at most `longest`), without dropout.

        A sentence ends before its first `END`; later tokens are not read. `START` is not among the tokens.
        """


@dataclass(frozen=True, slots=True)
class Language:
    """Sentences and their translations; the seed determines each word's substitute."""

    substitutes: tuple[int, ...]  # for each word of the source, starting with the first subject

    def translation(self, sentence: Sentence) -> Sentence:
        """Return an ending that agrees with the subject, then the substitutes of the words in reverse order."""
        plural = sentence[0] - MARKS >= _SUBJECTS // 2
        return (MARKS + plural, *(self.substitutes[word - MARKS] for word in reversed(sentence)))

    def batch(self, sentences: Sequence[Sentence]) -> SentencePairs:
        """Return sentences with their translations."""
        return collate([np.array(each) for each in sentences], [np.array(self.translation(each)) for each in sentences])


def language(seed: int) -> Language:
    """Return the language of a seed."""
    order = np.random.default_rng((seed, _SUBSTITUTES)).permutation(_SUBJECTS + _OTHERS)
    return Language(tuple(int(place) + MARKS + _ENDINGS for place in order))


def sentences(count: int, generator: np.random.Generator, *, held_out: bool) -> list[Sentence]:
    """Return random sentences, either from the held-out ones or from those for training."""
    found = list[Sentence]()
    while len(found) < count:
        others = generator.integers(_OTHERS, size=generator.integers(_FEWEST, _MOST + 1)) + MARKS + _SUBJECTS
        sentence = (int(generator.integers(_SUBJECTS)) + MARKS, *map(int, others))
        if (sum(sentence) % _ONE_IN == 0) == held_out:
            found.append(sentence)
    return found


def learn(check: Check, spec: Spec, build: Build, setting: Setting, progress: Progress) -> Learned:
    """Train a translator on the generated language and judge it; the result's `rule` says what must hold.

    `build` must return a `Translator`. Raises UsageError if sacrebleu is not installed.
    """
    score = _scorer()
    config = configured(spec, check, setting)
    spoken = language(setting.seed)
    judge = _Judge(spoken, sentences(_HELD_OUT, _generator(setting.seed, _JUDGED), held_out=True), score)
    steps = check.steps if setting.steps is None else setting.steps
    progress(0, steps)
    curve = tuple(_curve(build(config), judge, steps, setting.seed, progress))  # type: ignore[arg-type]
    chance, guessed = judge.chance(), judge.frequency_loss()
    return Learned(
        measure="BLEU, 0 to 100",
        chance=chance,
        frequency_loss=guessed,
        curve=curve,
        data=f"a generated language: words substituted, order reversed, an ending that agrees with the subject; "
        f"{_HELD_OUT} sentences held out",
        passed=passes(curve[-1], chance, guessed),
        rule=f"held-out loss for each token (the logarithm of perplexity) below that of the words' frequencies, and "
        f"BLEU {ABOVE_CHANCE:g} points above the better of copying the source and the most frequent word of each place",
    )


def passes(last: Point, chance: float, frequency_loss: float) -> bool:
    """Return whether a model predicts better than by frequency, and translates clearly better than a blind guess."""
    return last.loss < frequency_loss and last.quality >= chance + ABOVE_CHANCE


class _Judge:
    """Evaluates a translator on the held-out sentences."""

    def __init__(self, spoken: Language, held_out: Sequence[Sentence], score: "_Score") -> None:
        self._held_out = held_out
        self._truth = [spoken.translation(each) for each in held_out]
        self._batches = [spoken.batch(held_out[at : at + BATCH]) for at in range(0, len(held_out), BATCH)]
        self._score = score

    def look(self, translator: Translator, step: int, seconds: float) -> Point:
        """Return the figures on the held-out sentences."""
        logarithms = [_of_tokens(translator.predict(batch), batch) for batch in self._batches]
        rows = [translator.translate(each.source, each.source_lengths, LONGEST + 1) for each in self._batches]
        made = [_ended(row) for batch in rows for row in batch]
        return Point(step, seconds, -float(np.concatenate(logarithms).mean()), self._score(made, self._truth))

    def chance(self) -> float:
        """Return the better BLEU of two trivial translations: copies, and the most frequent word at each position."""
        frequent = [Counter(filter(None, place)).most_common(1)[0][0] for place in zip_longest(*self._truth)]
        guesses = [tuple(frequent[: len(each)]) for each in self._truth]
        return max(self._score(self._held_out, self._truth), self._score(guesses, self._truth))

    def frequency_loss(self) -> float:
        """Return the mean loss of predicting each token with its held-out frequency, `END` included."""
        tokens = Counter(word for each in self._truth for word in (*each, END))
        counts = np.array(list(tokens.values()), np.float64)
        shares = counts / counts.sum()
        return float(-(shares * np.log(shares)).sum())


class _Score(Protocol):
    def __call__(self, made: Sequence[Sentence], truth: Sequence[Sentence]) -> float: ...


def _scorer() -> _Score:
    """Return the function that computes the BLEU, 0 to 100, of translations given as word numbers."""
    try:
        import sacrebleu
    except ImportError as error:
        raise UsageError("BLEU needs sacrebleu: pip install 'tbdprof[text]'") from error

    def score(made: Sequence[Sentence], truth: Sequence[Sentence]) -> float:
        # Words are written as names that no tokenizer splits; `force` is set because such a text looks tokenized.
        texts = [[" ".join(f"w{word}" for word in each) for each in side] for side in (made, truth)]
        return float(sacrebleu.corpus_bleu(texts[0], [texts[1]], tokenize="none", force=True).score)

    return score


def _curve(translator: Translator, judge: _Judge, steps: int, seed: int, progress: Progress) -> Iterator[Point]:
    spoken, generator, seconds = language(seed), _generator(seed, _TRAINED), 0.0
    judged_at = {round(steps * part / _POINTS) for part in range(1, _POINTS + 1)}
    yield judge.look(translator, 0, seconds)
    for step in range(1, steps + 1):
        batch = spoken.batch(sentences(BATCH, generator, held_out=False))
        began = time.monotonic()
        translator.train(batch)
        seconds += time.monotonic() - began
        progress(step, steps)
        if step in judged_at:
            yield judge.look(translator, step, seconds)


def _generator(seed: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng((seed, purpose))


def _of_tokens(logarithms: NDArray[np.floating[Any]], batch: SentencePairs) -> NDArray[np.float64]:
    """Return the log-probability of each target token, without padding."""
    real = np.arange(batch.target.shape[1]) < batch.target_lengths[:, None]
    kept: NDArray[np.float64] = np.asarray(logarithms, np.float64)[real]
    return kept


def _ended(row: Numbers) -> Sentence:
    """Return the words before the first `END`."""
    words = [int(word) for word in row]
    return tuple(words[: words.index(END)] if END in words else words)
