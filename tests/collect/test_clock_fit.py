"""Another clock's times are converted to this one's, and the residual bounds the error."""

import numpy as np
import pytest

from tbdprof.collect.activity import clock_fit

WALL_NS = 1_780_000_000_000_000_000  # of the size of a wall clock, whose nanoseconds a float does not hold


def test_one_pair_moves_by_the_middle_and_may_be_off_by_half_of_it() -> None:
    line = clock_fit.fit([(1_000, WALL_NS, 1_400)])
    assert line.convert([WALL_NS, WALL_NS + 7]).tolist() == [1_200, 1_207]
    assert line.residual_ns == 200


def test_two_pairs_show_the_drift() -> None:
    # The other clock gains 100 millionths: 1 s there is 0.9999 s here.
    line = clock_fit.fit([(0, WALL_NS, 200), (999_900_000, WALL_NS + 1_000_000_000, 999_900_200)])
    assert line.slope == pytest.approx(0.9999, abs=1e-12)
    assert line.convert([WALL_NS, WALL_NS + 500_000_000]).tolist() == [100, 499_950_100]
    assert line.residual_ns == 100


def test_whole_nanoseconds_survive_a_wall_clock() -> None:
    line = clock_fit.fit([(50, WALL_NS, 50), (50 + 10**12, WALL_NS + 10**12, 50 + 10**12)])
    times = WALL_NS + np.array([1, 2, 3, 10**12 + 1])
    assert line.convert(times).tolist() == [51, 52, 53, 51 + 10**12]
    assert line.residual_ns == 0


def test_a_clock_that_was_set_between_the_pairs_shows_in_the_residual() -> None:
    """Planted: a line through both would fit exactly, and every time between them would be wrong."""
    line = clock_fit.fit([(0, WALL_NS, 0), (1_000_000_000, WALL_NS + 4_000_000_000, 1_000_000_000)])
    assert line.slope == 1.0
    assert line.residual_ns == 1_500_000_000


def test_pairs_at_one_time_have_slope_one() -> None:
    line = clock_fit.fit([(10, 5, 20), (12, 5, 18)])
    assert (line.slope, line.convert([5]).tolist()) == (1.0, [15])


def test_no_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="no reading"):
        clock_fit.fit([])


def test_the_closest_reading_of_several_is_kept() -> None:
    ticks = iter([0, 100, 200, 210, 300, 350])
    others = iter([1, 2, 3])
    assert clock_fit.pair(lambda: next(others), lambda: next(ticks), tries=3) == (200, 2, 210)


def test_converted_times_stay_within_the_residual_of_the_truth() -> None:
    rng = np.random.default_rng(0)
    at = np.arange(20) * 1_000_000_000
    early, late = rng.integers(0, 900, 20), rng.integers(0, 900, 20)
    others = [WALL_NS + int(time * 1.00005) for time in at]
    line = clock_fit.fit(list(zip((at - early).tolist(), others, (at + late).tolist(), strict=True)))
    error = line.convert(WALL_NS + (at * 1.00005).astype("i8")) - at
    assert np.abs(error).max() <= line.residual_ns < 1_500
