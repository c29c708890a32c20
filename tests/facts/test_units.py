"""Numbers as people read them."""

import pytest

from tbdprof.facts.units import decimal_text, one_of, times_text


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (24_299_077_632, "24.30 GFLOP"),
        (999, "999.00 FLOP"),
        (1e15, "1.00 PFLOP"),
        (1500, "1.50 kFLOP"),
        (0, "0.00 FLOP"),
    ],
)
def test_counts_are_in_the_largest_decimal_unit_they_reach(count: float, said: str):
    assert decimal_text(count, "FLOP") == said


def test_a_factor_says_that_it_is_one():
    assert times_text(2.345) == "2.3×"


@pytest.mark.parametrize(
    ("unit", "one"),
    [("images", "an image"), ("tokens", "a token"), ("steps", "a step"), ("seconds of audio", "a second of audio")],
)
def test_one_of_a_unit_has_its_article(unit: str, one: str):
    assert one_of(unit) == one
