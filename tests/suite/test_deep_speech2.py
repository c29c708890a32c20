"""Deep Speech 2 as a model of the suite: its utterances, what a step counts, and how it is judged."""

from itertools import islice
from typing import Any

import deep_speech2_trained as trained
import numpy as np
import pytest
import torch

from tbdprof import suite
from tbdprof.errors import UsageError
from tbdprof.facts.consumed import Consumed
from tbdprof.suite.checks.learning import Setting
from tbdprof.suite.data import speech
from tbdprof.suite.deep_speech2 import SPEC, ctc, learning, utterances
from tbdprof.suite.deep_speech2.packing import consumed, packing
from tbdprof.suite.workload import Config

# Of train-clean-100 at 0.9, 1 and 1.1 of its speed, by k2-fsa's icefall.
PUBLISHED = {
    0.001: 1.9, 0.005: 2.2, 0.01: 2.5, 0.05: 4.2, 0.1: 6.4, 0.25: 11.4, 0.5: 13.8, 0.75: 15.3, 0.9: 16.7, 0.95: 17.3,
    0.99: 18.1, 0.995: 18.4, 0.999: 18.8,
}  # fmt: skip


def config(**options: Any) -> Config:
    return suite.configure(SPEC, seed=options.pop("seed", 1), batch_size=options.pop("batch_size", 2), options=options)


def test_durations_are_librispeechs() -> None:
    shares = (np.arange(28_539) + 0.5) / 28_539
    seconds = np.interp(shares, utterances.SHARES, utterances.SECONDS)
    played = np.concatenate([seconds / 0.9, seconds, seconds / 1.1])

    assert seconds.mean() == pytest.approx(100.6 * 3600 / 28_539, rel=0.005)
    assert (utterances.SECONDS[0], utterances.SECONDS[-1]) == (1.4, 24.5)
    for share, published in PUBLISHED.items():
        assert np.quantile(played, share) == pytest.approx(published, abs=0.15)


def test_a_period_has_a_batch_of_each_quarter_of_the_durations() -> None:
    for seed in range(20):
        found = utterances.durations(2, 49, seed)  # twice as long as LibriSpeech's
        seconds = sorted(float(each.mean()) / 2 for each in found)
        bounds = np.interp([0, 0.25, 0.5, 0.75, 1], utterances.SHARES, utterances.SECONDS)
        assert all(low - 1 <= each <= high + 1 for low, each, high in zip(bounds, seconds, bounds[1:], strict=False))
        assert all((np.diff(each) <= 0).all() and np.ptp(each) <= 2 for each in found)


def test_utterances_are_no_longer_than_asked_and_have_fourteen_and_a_half_symbols_a_second() -> None:
    batches = utterances.synthetic(config(longest=10, batch_size=8))

    assert len(batches) == SPEC.period
    for batch in batches:
        assert batch.seconds <= 8 * 10
        assert batch.frames.tolist() == sorted(batch.frames, reverse=True)
        assert batch.lengths.sum() == pytest.approx(14.5 * batch.seconds, rel=0.05)
        assert batch.transcripts.min() >= 0
        assert batch.transcripts.max() < 29
        for said, length, frames in zip(batch.transcripts, batch.lengths, batch.frames, strict=True):
            assert said[:length].all()
            assert not said[length:].any()
            assert speech.needed(said[:length]) <= speech.halved(int(frames))


def test_batches_are_the_same_from_the_same_seed_and_come_again() -> None:
    first, again = (list(islice(utterances.batches(config()), 5)) for _ in range(2))
    (other,) = islice(utterances.batches(config(seed=2)), 1)

    assert first[0] is first[4]
    assert all((one.spectrograms == two.spectrograms).all() for one, two in zip(first, again, strict=True))
    assert first[0].spectrograms.tobytes() != other.spectrograms.tobytes()


def test_true_places_are_packed_by_time() -> None:
    found = packing([5, 3, 2])  # 3, 2 and 1 places

    assert found.lengths.tolist() == [3, 2, 1]
    assert found.running.tolist() == [3, 2, 1]
    assert found.places.tolist() == [0, 1, 2, 3, 4, 6]
    assert found.packed.tolist() == [[0, 1, 2], [3, 4, 0], [5, 0, 0]]


@pytest.mark.parametrize("framework", trained.MODULES)
def test_a_step_counts_seconds_and_utterances_and_reports_its_padding(framework: str) -> None:
    batch = trained.utterances(40, 30)
    assert consumed(batch) == Consumed(
        pytest.approx(0.7), {"utterances": 2}, {"seconds of audio": pytest.approx(0.1)}, {"frames": 40}
    )

    taken = trained.build(framework, config(longest=1)).step()

    assert taken == consumed(next(utterances.batches(config(longest=1))))


def test_statistics_are_of_true_frames_alone() -> None:
    workload = trained.build("torch", config(longest=1))
    conv = workload.model.conv1.conv
    batch = trained.utterances(43, 21)
    alone = [torch.from_numpy(each[:frames]) for each, frames in zip(batch.spectrograms, (43, 21), strict=True)]
    with torch.no_grad():
        places = torch.cat([conv(each[None, None]).transpose(0, 1).flatten(1) for each in alone], 1)

    trained.scores_in_training("torch", workload, batch)

    np.testing.assert_allclose(workload.model.conv1.norm.running_mean, 0.1 * places.mean(1), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_mxnet_refuses_what_it_has_not(precision: str) -> None:
    asked = suite.configure(SPEC, device="cuda", precision=precision)
    with pytest.raises(UsageError, match=f"{precision} needs --framework torch"):
        suite.build("deep_speech2", "mxnet", asked)


def test_the_loss_by_its_definition_sums_over_all_paths() -> None:
    scores = np.log(np.array([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1]]))
    # "1" in three places: any one of them, the first or last two, all three; the others blank.
    one = 0.3 * 0.6 * 0.1 + 0.5 * 0.3 * 0.1 + 0.5 * 0.6 * 0.8 + 0.3 * 0.3 * 0.1 + 0.5 * 0.3 * 0.8 + 0.3 * 0.3 * 0.8
    twice = 0.3 * 0.6 * 0.8  # only with a blank between

    assert ctc.loss(scores, np.array([1], np.int32)) == pytest.approx(-np.log(one))
    assert ctc.loss(scores, np.array([1, 1], np.int32)) == pytest.approx(-np.log(twice))
    assert ctc.loss(scores, np.array([1, 1, 1], np.int32)) == np.inf


def test_the_likeliest_transcript_is_found_where_no_place_alone_shows_it() -> None:
    scores = np.full((8, 29), -20.0)
    scores[np.arange(8), [2, 2, 0, 2, 3, 3, 0, 28]] = 0
    torn = np.log(np.array([[0.6, 0.4], [0.6, 0.4]]))  # blank and blank 0.36; once at either place, or at both, 0.64

    assert speech.text(ctc.searched(scores)) == "AAB "
    assert speech.text(ctc.searched(scores[:2])) == "A"
    assert ctc.searched(torn).tolist() == [1]
    assert ctc.loss(torn, np.array([1], np.int32)) == pytest.approx(-np.log(0.64))


def test_guessing_writes_what_is_frequent_and_errors_are_counted_in_characters() -> None:
    batch = speech.batch(learning.utterances(8, np.random.default_rng(0)))
    said = learning.texts([batch])
    judge = learning._Judge((batch,), learning._jiwer())

    assert judge.errors(said) == 0
    assert judge.errors([""] * 8) == 1
    assert judge.errors(["".join("Z" for _ in text) for text in said]) == 1
    assert min(map(judge.errors, learning.guesses(said, np.random.default_rng(0)))) > 0.5


def test_a_check_that_learned_nothing_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf:
        def train(self, _: Any) -> float:
            return 0.0

        def predict(self, batch: speech.Utterances) -> np.ndarray:
            return np.zeros((speech.halved(int(batch.frames[0])), len(batch.frames), 29))

    learned = learning.run(lambda _: Deaf(), Setting(steps=1), lambda *_: None)

    assert learned.passed is False
    assert learned.last.quality > learned.chance
    assert 0.5 < learned.chance < 1
