"""How much two groups of runs differ: figures by hand, scipy's quantiles, and how often the interval is right."""

import math

import numpy as np
import pytest

from tbdprof.analysis.comparison.statistics import NO_SPREAD, ONE_BLOCK, Estimate, effect, exact, ratio_of_sums, student
from tbdprof.analysis.time.time_blocks import mean_ratio_interval
from tbdprof.results.compare import BETWEEN, EXACT, WITHIN


def run_of(windows: list[list[float]], times: float = 1.0) -> Estimate:
    """Return the estimate of a run's rate, in steps per second, from the times of its windows' steps."""
    seconds = [times * np.array(each) for each in windows]
    return ratio_of_sums([np.ones(len(each)) for each in seconds], seconds)


@pytest.mark.parametrize("freedom", [1, 1.5, 2, 4, 9.7, 30, 200, math.inf])
def test_the_quantiles_are_those_of_scipy(freedom: float):
    stats = pytest.importorskip("scipy.stats")

    assert student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-5)


def test_the_variance_of_a_rate_is_that_between_its_windows():
    # Rates of 10, 9 and 11 units in a second each: mean 10, standard error 1 / sqrt(3), which is 5.77 % of it.
    found = ratio_of_sums(
        [np.array([4.0, 6.0]), np.array([9.0]), np.array([11.0])], [np.array([0.5, 0.5])] + [np.ones(1)] * 2
    )

    assert found.value == pytest.approx(10)
    assert found.variance == pytest.approx(1 / 300)
    assert found.freedom == 2


def test_one_window_is_divided_into_stretches_of_consecutive_blocks():
    slow_then_fast = np.array([2.0] * 8 + [1.0] * 8)

    found = run_of([slow_then_fast])  # type: ignore[list-item]

    # Four stretches of 8, 8, 4 and 4 seconds. The variance of single, independent blocks would be a third.
    assert found.freedom == 3
    assert found.variance == pytest.approx(4 / 3 * (2 * (4 - 8 / 1.5) ** 2 + 2 * (4 - 4 / 1.5) ** 2) / 16**2)


def test_a_single_block_has_no_variance_and_says_so():
    found = effect([run_of([[1.0]])], [run_of([[2.0]])])

    assert (found.ratio, found.interval, found.reason) == (0.5, None, ONE_BLOCK)


def test_one_run_a_side_has_the_variation_within_each():
    found = effect([Estimate(100.0, 0.0004, 2)], [Estimate(110.0, 0.0004, 2)])

    assert found.basis == WITHIN
    # A run varies as its three windows do, which is three times the variance of their mean. Satterthwaite's degrees of
    # freedom of two equal variances are the sum of theirs.
    reach = math.exp(student(4) * math.sqrt(3 * 0.0008))
    assert found.interval == pytest.approx((1.1 / reach, 1.1 * reach))
    assert found.change_interval == pytest.approx((100 * (1.1 / reach - 1), 100 * (1.1 * reach - 1)))


def test_several_runs_have_the_variation_between_them_by_hand():
    one, two = [Estimate(math.exp(each)) for each in (0.0, 0.1, 0.2)], [Estimate(math.exp(each)) for each in (0.3, 0.5)]

    found = effect(one, two)

    # Sums of squares 0.02 and 0.02 over 5 - 2 degrees of freedom; the means' logs are 0.1 and 0.4.
    error = math.sqrt(0.04 / 3 * (1 / 3 + 1 / 2))
    assert found.basis == BETWEEN
    assert found.ratio == pytest.approx(math.exp(0.3))
    assert found.interval == pytest.approx((math.exp(0.3 - student(3) * error), math.exp(0.3 + student(3) * error)))


def test_runs_that_agree_by_chance_keep_the_variation_within_them():
    found = effect([Estimate(100.0, 0.0003, 2)] * 2, [Estimate(100.0, 0.0003, 2)] * 2)

    assert found.interval is not None
    assert found.interval[1] == pytest.approx(math.exp(student(2) * math.sqrt(0.0003)))


def test_a_count_is_exact_and_one_time_has_no_interval():
    assert effect([exact(100.0)], [exact(103.0)])[:4] == (100.0, 103.0, 1.03, (1.0 + 0.03, 1.0 + 0.03))
    assert effect([exact(7.0)] * 3, [exact(7.0)] * 3).basis == EXACT
    assert effect([Estimate(1.0)], [Estimate(2.0)]).reason == NO_SPREAD


def test_figures_that_may_be_0_are_compared_by_their_difference():
    found = effect([exact(0.0)], [exact(64.0)])
    assert (found.ratio, found.interval, found.change_interval) == (None, None, (64.0, 64.0))

    found = effect([Estimate(0.0), Estimate(2.0)], [Estimate(5.0), Estimate(7.0)])
    assert found.change_interval == pytest.approx((5 - student(2) * math.sqrt(2), 5 + student(2) * math.sqrt(2)))


def simulated(draw: np.random.Generator, slower: float, between: float) -> list[list[float]]:
    """Return the times of a run's steps: an effect of the run, of the window, and autocorrelated noise."""
    windows, mine = [], slower * (1 + between * draw.standard_normal())
    for _ in range(3):
        noise = 0.02 * np.convolve(draw.standard_normal(29), np.ones(10) / math.sqrt(10), "valid")
        windows.append(list(mine * (1 + 0.01 * draw.standard_normal()) * (1 + noise)))
    return windows


def test_the_interval_holds_the_truth_as_often_as_it_says_and_one_over_blocks_alone_does_not():
    draw, right, alone = np.random.default_rng(17), 0, 0
    for _ in range(400):
        sides = [[simulated(draw, 1.0, 0.02) for _ in range(3)] for _ in range(2)]
        ends = effect(*[[run_of(each) for each in side] for side in sides]).interval
        assert ends is not None
        right += ends[0] <= 1 <= ends[1]
    for _ in range(40):
        one, two = (np.concatenate([np.concatenate(simulated(draw, 1.0, 0.02)) for _ in range(3)]) for _ in range(2))
        ends = mean_ratio_interval(one, two)  # the planted mistake: all steps of a side as if they were independent
        assert ends is not None
        alone += ends[0] <= 1 <= ends[1]

    assert 0.92 <= right / 400 <= 0.985
    assert alone / 40 < 0.6
