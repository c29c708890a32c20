"""The knee of throughput over the batch, on curves whose knee is known."""

import numpy as np
import pytest

from tbdprof.analysis.sweep.knee import knee
from tbdprof.results.sweep import Growth, Knee
from tbdprof.results.time import Rate

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
RUNS = 200


def saturating(half: float, largest: float = 1000.0) -> dict[int, float]:
    """Return the throughputs of a curve that reaches half of its largest at a batch."""
    return {size: largest * size / (size + half) for size in SIZES}


CURVES = {
    # name: (true throughputs, noise of each as a share of it, the knee or None if it is the largest)
    "at once": (dict.fromkeys(SIZES, 500.0), 0.005, 1),
    "step at 2": ({size: 100.0 if size < 2 else 500.0 for size in SIZES}, 0.005, 2),
    "step at 16": ({size: 500.0 if size < 16 else 1000.0 for size in SIZES}, 0.005, 16),
    "step at 64": ({size: 900.0 if size < 64 else 1000.0 for size in SIZES}, 0.005, 64),
    "linear up to 8": ({size: 10.0 * min(size, 8) for size in SIZES}, 0.005, 8),
    "linear up to 32": ({size: 10.0 * min(size, 32) for size in SIZES}, 0.005, 32),
    "falls after 16": ({size: 10.0 * min(size, 16) * (0.8 if size > 16 else 1.0) for size in SIZES}, 0.005, 16),
    "falls slowly after 4": ({1: 25.0, 2: 50.0, 4: 100.0, **dict.fromkeys(SIZES[3:], 97.5)}, 0.003, 4),
    "half at 0.8": (saturating(0.8), 0.001, 16),
    "half at 0.25": (saturating(0.25), 0.001, 8),
    "still linear": ({size: 10.0 * size for size in SIZES}, 0.02, None),
    "half at 64": (saturating(64.0), 0.01, None),
    "a plateau, then more": ({size: 500.0 if size < 128 else 700.0 for size in SIZES}, 0.01, None),
}


def drawn(curve: dict[int, float], noise: float, number: int, errors: float = 1.96) -> dict[int, Rate]:
    """Return throughputs with noise, and their intervals."""
    generator = np.random.default_rng(number)
    rates = {}
    for size, true in curve.items():
        error = noise * true
        seen = float(generator.normal(true, error))
        rates[size] = Rate(seen, (seen - errors * error, seen + errors * error))
    return rates


def found_in(curve: dict[int, float], noise: float, number: int, errors: float = 1.96) -> Knee:
    found = knee(drawn(curve, noise, number, errors), "images").value
    assert found is not None
    return found


def true_knee(curve: dict[int, float]) -> int:
    return min(size for size, rate in curve.items() if rate >= 0.95 * max(curve.values()))


@pytest.mark.parametrize("name", CURVES)
def test_a_known_knee_is_found_and_never_a_wrong_one(name: str) -> None:
    curve, noise, expected = CURVES[name]
    found = [found_in(curve, noise, number) for number in range(RUNS)]

    assert true_knee(curve) == (expected or SIZES[-1])
    within = sum(each.low <= true_knee(curve) <= each.high for each in found)
    exact = sum(each.low == each.high == true_knee(curve) for each in found)
    saturated = sum(each.growth is Growth.SATURATED for each in found)
    growing = sum(each.growth is Growth.GROWING for each in found)
    assert within >= 0.95 * RUNS
    assert exact >= 0.8 * RUNS
    assert (growing if expected is None else saturated) >= 0.95 * RUNS
    assert (saturated if expected is None else growing) == 0


@pytest.mark.parametrize("name", CURVES)
def test_noise_that_hides_the_knee_is_said_to(name: str) -> None:
    curve, _, expected = CURVES[name]
    found = [found_in(curve, 0.4, number) for number in range(RUNS)]

    wrong = sum(not each.low <= true_knee(curve) <= each.high for each in found)
    claimed = sum(each.growth is (Growth.SATURATED if expected is None else Growth.GROWING) for each in found)
    unclear = sum(each.growth is Growth.UNCLEAR for each in found)
    assert wrong <= 0.05 * RUNS
    assert claimed <= 0.05 * RUNS
    assert unclear >= 0.9 * RUNS


def test_intervals_that_are_too_narrow_give_wrong_knees() -> None:
    """The judge of the test above can say no: with intervals of a tenth of the noise, knees are wrong."""
    curve, noise, _ = CURVES["at once"]
    found = [found_in(curve, 10 * noise, number, errors=0.196) for number in range(RUNS)]

    assert sum(not each.low <= true_knee(curve) <= each.high for each in found) > 0.05 * RUNS


def test_the_largest_that_fits_is_told_from_the_largest_that_was_run() -> None:
    curve, noise, _ = CURVES["still linear"]
    rates = drawn(curve, noise, 0)

    ends = [knee(rates, "images", ends_at_memory=each).value for each in (True, False)]

    assert [each.ends_at_memory for each in ends if each is not None] == [True, False]


@pytest.mark.parametrize(
    ("rates", "reason"),
    [
        ({}, "only 0 batch sizes have a throughput: the knee needs 3"),
        ({1: Rate(1.0, (0.9, 1.1)), 2: Rate(2.0, (1.9, 2.1))}, "only 2 batch sizes"),
        (
            {size: Rate(1.0, None if size == 2 else (0.9, 1.1)) for size in (1, 2, 4)},
            "the throughput of batch 2 has",
        ),
    ],
)
def test_a_knee_that_cannot_be_found_has_its_reason(rates: dict[int, Rate], reason: str) -> None:
    found = knee(rates, "images")

    assert found.value is None
    assert reason in (found.reason or "")


def test_throughputs_without_noise_are_compared_as_they_are() -> None:
    rates = {size: Rate(float(min(size, 8)), (float(min(size, 8)),) * 2) for size in SIZES}

    found = knee(rates, "images").value

    assert found is not None
    assert (found.low, found.high, found.growth) == (8, 8, Growth.SATURATED)
