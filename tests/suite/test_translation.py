"""The translators' sentences have lengths as in the real texts, and are put into batches as in the references."""

from dataclasses import replace
from itertools import islice
from math import log, sqrt
from statistics import NormalDist

import numpy as np
import pytest

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.data.inputs import END, MARKS, SentencePairs, collate
from tbdprof.suite.data.text.buckets import Sentences, Size, Tokens, bounds
from tbdprof.suite.data.text.corpora import IWSLT15, WMT14, Corpus
from tbdprof.suite.data.text.translation import batches, consumed, lengths, synthetic
from tbdprof.suite.workload import Config

DRAWN = 200_000
CASES = [
    (IWSLT15, Sentences(8)),
    (IWSLT15, Sentences(128)),
    (WMT14, Tokens(128)),
    (WMT14, Tokens(4096)),
    (replace(IWSLT15, source_words=12, target_words=9, longest=6), Sentences(3)),
    (replace(WMT14, source_words=12, target_words=12, longest=9), Tokens(24)),
]


def whole(corpus: Corpus) -> np.ndarray:
    """Return lengths of which none is cut or left out."""
    return lengths(replace(corpus, longest=10**6), DRAWN, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("corpus", "means"), [(IWSLT15, (2.7e6 / 133e3, 3.3e6 / 133e3)), (WMT14, (28.524, 29.577))], ids=["IWSLT15", "WMT"]
)
def test_the_mean_lengths_are_the_published_ones(corpus: Corpus, means: tuple[float, float]):
    # Of 200,000 log-normal lengths with a deviation of two thirds of their mean, the mean is within 0.15 % (one sigma).
    assert whole(corpus).mean(axis=0) == pytest.approx(means, rel=0.008)


@pytest.mark.parametrize(("corpus", "share"), [(IWSLT15, 0.960), (WMT14, 0.888)], ids=["IWSLT15", "WMT"])
def test_most_sentences_have_up_to_50_words(corpus: Corpus, share: float):
    median = log(corpus.source_mean) - 0.635**2 / 2
    assert NormalDist(median, 0.635).cdf(log(50.5)) == pytest.approx(share, abs=0.001)

    assert (whole(corpus)[:, 0] <= 50).mean() == pytest.approx(share, abs=0.005)


def test_the_spread_is_that_of_sentences_of_the_iwslt15_release():
    # tst2012 and tst2013 together: 2,821 pairs, 19.39 and 24.10 words on average.
    source, target = whole(replace(IWSLT15, source_mean=19.39, target_mean=24.10)).T

    assert np.percentile(source, [5, 50, 95]) == pytest.approx([6, 16, 44], abs=1)
    assert np.percentile(target, [5, 50, 95]) == pytest.approx([7, 20, 54], abs=4)
    assert np.std(source) == pytest.approx(12.57, rel=0.1)
    assert np.std(target) == pytest.approx(15.91, rel=0.15)


def test_a_target_is_about_as_long_as_its_source():
    source, target = np.log(whole(WMT14)[whole(WMT14)[:, 0] > 20]).T

    assert np.std(target - source) == pytest.approx(0.205, abs=0.005)


def test_a_sentence_of_iwslt15_is_cut_and_a_long_pair_of_wmt_left_out():
    cut, left = (lengths(corpus, DRAWN, np.random.default_rng(0)) for corpus in (IWSLT15, WMT14))

    assert (len(cut), cut.max(axis=0).tolist(), cut.min()) == (DRAWN, [50, 50], 1)
    assert (cut[:, 0] == 50).mean() > 0.03
    assert left.max() == 100
    assert 1 - len(left) / DRAWN == pytest.approx(0.018, abs=0.001)


def test_buckets_by_sentences_are_ten_words_wide_as_in_tensorflow_nmt():
    size = Sentences(128)

    assert size.buckets(np.array([1, 9, 10, 19, 20, 49, 50, 51]), IWSLT15.limit).tolist() == [0, 0, 1, 1, 2, 4, 5, 5]
    assert [size.sentences(bucket, IWSLT15.limit) for bucket in range(6)] == [128] * 6
    assert size.buckets(np.array([1, 4, 5, 6]), 6).tolist() == [1, 4, 5, 5]  # cut at 5 words: one wide


def test_buckets_by_tokens_widen_by_a_tenth_as_in_tensor2tensor():
    assert bounds(101) == [*range(8, 21), 22, 24, 26, 28, 30, 33, 36, 39, 42, 46, 50, 55, 60, 66, 72, 79, 86, 94, 101]
    assert bounds(6) == [6]

    size = Tokens(4096)

    assert size.buckets(np.array([2, 7, 8, 21, 22, 93, 94, 101]), 101).tolist() == [0, 0, 1, 13, 14, 30, 31, 31]
    assert [size.sentences(bucket, 101) for bucket in (0, 13, 31)] == [4096 // 8, 4096 // 22, 4096 // 101]
    assert Tokens(60).sentences(31, 101) == 1


@pytest.mark.parametrize(("corpus", "size"), CASES)
def test_a_batch_is_full_of_sentences_of_one_bucket(corpus: Corpus, size: Size):
    for batch in synthetic(corpus, size, 0, 6):
        longer = np.maximum(batch.source_lengths, batch.target_lengths).astype(np.int64)
        (bucket,) = set(size.buckets(longer, corpus.limit).tolist())
        assert len(longer) == size.sentences(bucket, corpus.limit)
        assert batch.source.shape == (len(longer), batch.source_lengths.max())
        assert batch.target.shape == (len(longer), batch.target_lengths.max())
        assert batch.source_lengths.max() <= corpus.longest
        assert batch.target_lengths.max() <= corpus.longest + 1


@pytest.mark.parametrize(("corpus", "size"), CASES)
def test_words_end_where_the_lengths_say_and_are_within_the_vocabulary(corpus: Corpus, size: Size):
    for batch in synthetic(corpus, size, 0, 6):
        assert {each.dtype for each in (batch.source, batch.source_lengths, batch.target, batch.target_lengths)} == {
            np.dtype(np.int32)
        }
        sides = (
            (batch.source, batch.source_lengths, corpus.source_words),
            (batch.target, batch.target_lengths - 1, corpus.target_words),
        )
        for words, counts, rows in sides:
            real = np.arange(words.shape[1]) < counts[:, None]
            assert ((words >= MARKS) & (words < rows))[real].all()
            assert (words[~real] == END).all()
            assert counts.min() >= 1


@pytest.mark.parametrize(("corpus", "size"), CASES)
def test_batches_follow_the_seed(corpus: Corpus, size: Size):
    def held(seed: int) -> list[bytes]:
        return [each.source.tobytes() + each.target.tobytes() for each in synthetic(corpus, size, seed, 4)]

    assert held(5) == held(5) != held(6)
    assert len(set(held(5))) == 4


@pytest.mark.parametrize("seed", range(4))
def test_eight_batches_have_the_mean_length_of_all(seed: int):
    every = lengths(IWSLT15, DRAWN, np.random.default_rng(9)).mean(axis=0)
    eight = synthetic(IWSLT15, Sentences(8), seed, 8)

    assert np.mean([each.source_lengths.mean() for each in eight]) == pytest.approx(every[0], rel=0.1)
    assert np.mean([each.target_lengths.mean() - 1 for each in eight]) == pytest.approx(every[1], rel=0.1)
    assert max(each.source.shape[1] for each in eight) > 40
    assert min(each.source.shape[1] for each in eight) < 12


def test_a_word_is_as_frequent_as_one_over_its_rank():
    words = np.concatenate([batch.source[:, :9].ravel() for batch in synthetic(IWSLT15, Sentences(512), 0, 20)])
    first, *others = (np.count_nonzero(words == MARKS + rank) for rank in range(4))

    # Rank 1 of 17,188 has one in 10.33 (the sum of their reciprocals).
    assert first / np.count_nonzero(words >= MARKS) == pytest.approx(1 / 10.33, rel=0.03)
    for rank, times in enumerate(others, 2):
        assert times == pytest.approx(first / rank, abs=5 * sqrt(first / rank))


def test_sentences_become_rows_that_end():
    batch = collate([np.array([5, 6, 7]), np.array([8])], [np.array([9]), np.array([4, 3])])

    assert batch.source.tolist() == [[5, 6, 7], [8, END, END]]
    assert batch.source_lengths.tolist() == [3, 1]
    assert batch.target.tolist() == [[9, END, END], [4, 3, END]]
    assert batch.target_lengths.tolist() == [2, 3]


def test_a_step_consumes_the_words_of_both_sides_and_computes_padding():
    batch = collate([np.array([5, 6, 7]), np.array([8])], [np.array([9]), np.array([4, 3])])

    # Words 3 + 1, and 1 + 2 with two ends: 9. Places 2 × 3 on either side: 12.
    asked = {"source": 3, "target": 3}
    assert consumed(batch, "tokens") == Consumed(9, {"sentences": 2}, {"tokens": 3}, asked)
    assert consumed(batch, "sentences") == Consumed(2, {"tokens": 9}, {"tokens": 3}, asked)


def test_a_configuration_without_data_has_its_batches_again_and_again():
    def same(one: SentencePairs, other: SentencePairs) -> bool:
        return one.source.tobytes() == other.source.tobytes() and one.target.tobytes() == other.target.tobytes()

    first = list(islice(batches(Config(4, seed=3), IWSLT15, Sentences(4), 3), 6))

    assert all(map(same, first, [*synthetic(IWSLT15, Sentences(4), 3, 3)] * 2))
