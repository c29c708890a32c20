"""When a loop counts as settled."""

import pytest

from tbdprof.loop import steady


def test_level_noise_is_settled():
    assert steady.is_settled([5.0, 1.0, 1.02, 0.99, 1.01, 0.98, 1.0])


def test_fewer_blocks_than_the_method_needs_are_not():
    assert not steady.is_settled([1.0] * (steady.BLOCKS - 1))


def test_a_trend_is_not_settled_however_small_its_spread():
    assert not steady.is_settled([1.0, 0.999, 0.998, 0.997, 0.996, 0.995])


def test_a_wide_spread_is_not_settled():
    assert not steady.is_settled([1.0, 2.0, 1.0, 2.0, 1.0, 2.0])


def test_only_the_latest_blocks_are_judged():
    assert steady.is_settled([100.0, 50.0, 9.0, *[1.0, 1.01] * 3])


def test_mann_kendall_by_hand():
    # 4 values in order: S = 6, variance = 4·3·13/18, z = 5 / sqrt(8.667)
    assert steady.trend_z([1, 2, 3, 4]) == pytest.approx(5 / (26 / 3) ** 0.5)
    assert steady.trend_z([4, 3, 2, 1]) == pytest.approx(-5 / (26 / 3) ** 0.5)
    assert steady.trend_z([1, 1, 1, 1]) == 0


def test_spread_is_standard_deviation_over_mean():
    assert steady.spread([9.0, 11.0]) == pytest.approx(2**0.5 / 10)
