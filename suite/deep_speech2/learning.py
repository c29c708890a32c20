"""Deep Speech 2's learning check: it must transcribe sequences of tones, one tone for each symbol."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from tbdprof.errors import UsageError
from tbdprof.suite.checks.learning import Build, Check, Learned, Point, Progress, Setting, configured
from tbdprof.suite.data import speech
from tbdprof.suite.data.speech import RATE, Utterance, Utterances
from tbdprof.suite.deep_speech2 import SPEC, ctc
from tbdprof.suite.deep_speech2.utterances import batches
from tbdprof.suite.workload import Learner

STEPS = 100
EVERY = 20  # steps between two evaluations on the held-out utterances
BATCH = 4
HELD_OUT = 32
TONES = "ABCDEF"
SHARE = 0.5  # the error rate must be below this share of the error rate of guessing

_TRAINED, _HELD_OUT, _GUESSED = 10, 11, 12  # joined to the seed, so that each purpose draws its own random numbers
_LENGTHS = (2, 5)  # symbols of a transcript
_SECONDS = (0.08, 0.16)  # of a tone
_LOWEST, _HIGHEST = 400, 6000  # Hz
_NOISE = 0.05  # amplitude, where a tone's is 1


@dataclass(frozen=True, slots=True)
class _Judge:
    """Evaluates a workload on the held-out utterances."""

    batches: tuple[Utterances, ...]
    jiwer: ModuleType

    def look(self, workload: Learner, step: int, seconds: float) -> Point:
        lost, found = list[float](), list[str]()
        for batch in self.batches:
            scores = workload.predict(batch)
            lost += ctc.losses(scores, batch)
            found += ctc.transcripts(scores, batch)
        symbols = sum(len(text) for text in texts(self.batches))
        return Point(step, seconds, sum(lost) / symbols, self.errors(found))

    def errors(self, found: Sequence[str]) -> float:
        """Return the character error rate of transcripts: errors divided by the number of true symbols."""
        return float(self.jiwer.cer(texts(self.batches), list(found)))


def utterances(count: int, random: np.random.Generator) -> list[Utterance]:
    """Return utterances of two to five tones in noise; each tone stands for a symbol and lasts 80 to 160 ms."""
    return [_utterance(random) for _ in range(count)]


def texts(batches: Sequence[Utterances]) -> list[str]:
    """Return all transcripts of batches."""
    return [
        speech.text(said[:length])
        for batch in batches
        for said, length in zip(batch.transcripts, batch.lengths, strict=True)
    ]


def guesses(said: Sequence[str], random: np.random.Generator) -> Iterator[list[str]]:
    """Yield transcripts guessed without listening: empty, one symbol at the usual length, those of other utterances."""
    usual = round(float(np.mean([len(text) for text in said])))
    yield [""] * len(said)
    for symbol in TONES:
        yield [symbol * usual] * len(said)
    yield [said[index] for index in random.permutation(len(said))]


def run(build: Build, setting: Setting, progress: Progress) -> Learned:
    """Train on tones and judge the transcripts of held-out ones; `loss` is the CTC loss per symbol."""
    steps = setting.steps or CHECK.steps
    config = configured(SPEC, CHECK, setting)
    held_out = utterances(HELD_OUT, np.random.default_rng((setting.seed, _HELD_OUT)))
    batches = tuple(speech.batch(held_out[first : first + BATCH]) for first in range(0, HELD_OUT, BATCH))
    judge = _Judge(batches, _jiwer())
    said = texts(batches)
    chance = min(judge.errors(guess) for guess in guesses(said, np.random.default_rng((setting.seed, _GUESSED))))
    curve = tuple(_curve(build(config), judge, steps, setting.seed, progress))
    return Learned(
        measure="character error rate (less is better); loss: CTC's of a symbol",
        chance=chance,
        frequency_loss=None,
        curve=curve,
        data=f"two to five tones in noise, each of one of {len(TONES)} symbols",
        passed=curve[-1].quality < SHARE * chance and curve[-1].loss < curve[0].loss,
        rule="the error rate is below half of what the best guess without listening reaches, and the loss has fallen",
    )


def _curve(workload: Learner, judge: _Judge, steps: int, seed: int, progress: Progress) -> Iterator[Point]:
    random, seconds = np.random.default_rng((seed, _TRAINED)), 0.0
    yield judge.look(workload, 0, seconds)
    for step in range(1, steps + 1):
        batch = speech.batch(utterances(BATCH, random))
        began = time.perf_counter()
        workload.train(batch)
        seconds += time.perf_counter() - began
        progress(step, steps)
        if step % EVERY == 0 or step == steps:
            yield judge.look(workload, step, seconds)


def _utterance(random: np.random.Generator) -> Utterance:
    chosen = random.integers(len(TONES), size=random.integers(_LENGTHS[0], _LENGTHS[1] + 1))
    sound = np.concatenate([_tone(tone, random) for tone in chosen])
    sound += _NOISE * random.standard_normal(len(sound))
    transcript = speech.transcribed("".join(TONES[tone] for tone in chosen))
    return Utterance(speech.spectrogram(sound), transcript, len(sound) / RATE)


def _tone(tone: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Return a tone that swells and fades, so that two equal tones differ from one long tone."""
    pitch = _LOWEST * (_HIGHEST / _LOWEST) ** (tone / (len(TONES) - 1))
    samples = round(RATE * random.uniform(*_SECONDS))
    envelope = np.sin(np.pi * np.arange(samples) / samples)
    wave: NDArray[np.float64] = envelope * np.sin(2 * np.pi * pitch / RATE * np.arange(samples))
    return wave


def _jiwer() -> ModuleType:
    try:
        import jiwer
    except ImportError as error:
        raise UsageError("the character error rate needs jiwer: pip install 'tbdprof[speech]'") from error
    module: ModuleType = jiwer
    return module


CHECK = Check(run, {}, BATCH, STEPS, batches)
