"""A translator is judged on sentences it was not trained on; one that guesses, copies or forgets the order fails."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tbdprof.errors import UsageError
from tbdprof.suite.checks import translation
from tbdprof.suite.checks.learning import Check, Learned, Point, Setting
from tbdprof.suite.checks.translation import BATCH, LONGEST, WORDS, Sentence, language, learn, passes, sentences
from tbdprof.suite.data.inputs import END, MARKS, START, SentencePairs
from tbdprof.suite.workload import Spec

SPEC = Spec("toy", "Toy", "translation", "none", "tokens", "sentences", "0", "none", 0, {"cpu": 1}, "none")
CHECK = Check(lambda *_: None, {}, 1, 8)  # type: ignore[arg-type,return-value]


@dataclass
class Known:
    """Says a fixed probability of every token, and translates by a rule."""

    rule: Callable[[Sentence], Sentence]
    probability: float
    trained: list[SentencePairs] = field(default_factory=list)
    padded: int = END
    model = optimizer = inputs = None

    def step(self) -> float:
        raise AssertionError

    def train(self, batch: SentencePairs) -> float:
        self.trained.append(batch)
        return 0.0

    def predict(self, batch: SentencePairs) -> Any:
        logarithms = np.full(batch.target.shape, np.log(self.probability))
        logarithms[np.arange(batch.target.shape[1]) >= batch.target_lengths[:, None]] = -1e9  # not to be read
        return logarithms

    def translate(self, source: Any, source_lengths: Any, longest: int) -> Any:
        rows = np.full((len(source), longest), self.padded)
        for row, words, count in zip(rows, source, source_lengths, strict=True):
            made = [*self.rule(tuple(map(int, words[:count]))), END][:longest]
            row[: len(made)] = made
        return rows


def learned(translator: Known, seed: int = 0) -> Learned:
    """Return what is said of a translator."""
    return learn(CHECK, SPEC, lambda _: translator, Setting(seed=seed), lambda *_: None)  # type: ignore[arg-type,return-value]


def reversed_back(sentence: Sentence) -> Sentence:
    """Return a translation whose words are right and in the source's order."""
    ending, *words = language(0).translation(sentence)
    return (ending, *words[::-1])


def test_a_translation_is_reversed_and_begins_with_what_agrees():
    spoken = language(0)
    singular, plural = (MARKS, 12, 9), (MARKS + 3, 12, 9)

    first, second = map(spoken.translation, (singular, plural))

    assert (first[0], second[0]) == (MARKS, MARKS + 1)
    assert first[1:3] == second[1:3] == (spoken.substitutes[9 - MARKS], spoken.substitutes[12 - MARKS])
    assert (first[3], second[3]) == (spoken.substitutes[0], spoken.substitutes[3])
    assert sorted(spoken.substitutes) == list(range(MARKS + 2, WORDS))
    assert language(1).substitutes != spoken.substitutes


def test_no_held_out_sentence_is_trained_on():
    translator = Known(language(0).translation, 0.9)
    learned(translator)
    judged = set(sentences(64, np.random.default_rng(0), held_out=True))

    assert len(translator.trained) == CHECK.steps
    for batch in translator.trained:
        assert len(batch.source) == BATCH
        assert batch.source.max() < WORDS > batch.target.max()
        assert batch.target_lengths.max() <= LONGEST + 1
        for words, count in zip(batch.source, batch.source_lengths, strict=True):
            assert sum(words[:count]) % 7 != 0
    assert all(sum(each) % 7 == 0 for each in judged)


def test_a_translator_that_knows_passes():
    found = learned(Known(language(0).translation, 0.9))

    assert found.passed
    assert found.last.quality == pytest.approx(100)
    assert found.last.loss == pytest.approx(-np.log(0.9))
    assert [point.step for point in found.curve] == [0, 2, 4, 6, 8]


def test_what_follows_the_end_is_not_read():
    assert learned(Known(language(0).translation, 0.9, padded=MARKS + 2)).last.quality == pytest.approx(100)


@pytest.mark.parametrize(
    "rule",
    [
        lambda sentence: sentence,
        lambda sentence: (MARKS, *sentence[::-1]),
        reversed_back,
        lambda _: (MARKS + 4,) * 6,
        lambda _: (),
        lambda _: (START,),
        language(1).translation,
    ],
    ids=["copy", "reversed copy", "words in the source's order", "one word", "nothing", "start", "another language"],
)
@pytest.mark.parametrize("probability", [0.9, 1 / WORDS], ids=["sure", "guessing"])
def test_a_translator_that_does_not_know_fails(rule: Callable[[Sentence], Sentence], probability: float):
    assert not learned(Known(rule, probability)).passed


def test_a_right_translation_that_is_predicted_no_better_than_by_frequency_fails():
    found = learned(Known(language(0).translation, 1 / WORDS))

    assert not found.passed
    assert found.last.quality == pytest.approx(100)


def test_chance_and_the_frequencies_are_those_of_the_held_out_sentences():
    found = learned(Known(language(0).translation, 0.9))

    assert 0.5 < found.chance < 5
    judged = sentences(64, np.random.default_rng((0, translation._JUDGED)), held_out=True)
    words = [word for each in judged for word in (*language(0).translation(each), END)]
    losses = [-np.log(words.count(word) / len(words)) for word in words]
    assert found.frequency_loss == pytest.approx(np.mean(losses))
    assert 2.5 < np.mean(losses) < np.log(WORDS - MARKS + 1)  # of 20 words and `END`, not all as frequent


@pytest.mark.parametrize(("loss", "quality", "expected"), [(1.9, 22.0, True), (2.0, 22.0, False), (1.9, 21.9, False)])
def test_both_must_hold(loss: float, quality: float, expected: bool):
    assert passes(Point(1, 0.0, loss, quality), chance=2.0, frequency_loss=2.0) is expected


def test_without_sacrebleu_one_line_says_what_to_type(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu", None)

    with pytest.raises(UsageError, match=r"^BLEU needs sacrebleu: pip install 'tbdprof\[text\]'$"):
        learned(Known(language(0).translation, 0.9))
