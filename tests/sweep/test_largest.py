"""The search for the largest size that fits, on made-up memories."""

from collections.abc import Callable

import pytest

from tbdprof.sweep.largest import Taken, next_size

ROOM = 1_000_000


def searched(took: Callable[[int], int], *, known: bool = True, most: int | None = None) -> tuple[int, list[int]]:
    """Return the largest size that was found to fit, and the sizes that were tried."""
    fits: dict[int, Taken] = {}
    failed: set[int] = set()
    tried: list[int] = []
    while (size := next_size(fits, frozenset(failed), most)) is not None:
        assert size not in tried
        tried.append(size)
        assert len(tried) < 60
        if took(size) <= ROOM:
            fits[size] = Taken(took(size), ROOM) if known else Taken()
        else:
            failed.add(size)
    return max(fits, default=0), tried


MEMORIES: dict[str, Callable[[int], int]] = {
    "a line": lambda size: 1000 * size,
    "a line with an offset": lambda size: 200_000 + 7001 * size,
    "with a workspace that grows in steps": lambda size: 100_000 + 5000 * size + 40_000 * (size // 16),
    "more than a line": lambda size: 100 * size * size,
    "less than a line": lambda size: int(20_000 * size**0.7),
    "nearly flat, then a wall": lambda size: 500_000 + size if size < 777 else 2 * ROOM,
    "one fits": lambda size: 600_000 * size,
    "a power of two is the largest": lambda size: ROOM // 64 * size,
    "one below a power of two": lambda size: ROOM // 63 * size,
}


def largest(took: Callable[[int], int]) -> int:
    return max((size for size in range(1, 3000) if took(size) <= ROOM), default=0)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", MEMORIES)
def test_the_largest_that_fits_is_found(name: str, known: bool) -> None:
    took = MEMORIES[name]

    found, tried = searched(took, known=known)

    assert found == largest(took)
    assert found + 1 in tried  # that the next one does not fit was seen
    assert len(tried) <= 2 * max(1, found).bit_length() + 6


@pytest.mark.parametrize("name", ["a line", "a line with an offset"])
def test_a_forecast_that_is_right_saves_trials(name: str) -> None:
    _, foretold = searched(MEMORIES[name])
    _, halved = searched(MEMORIES[name], known=False)

    doubling = largest(MEMORIES[name]).bit_length() + 1
    assert len(foretold) - doubling <= 2
    assert len(foretold) < len(halved)


def test_nothing_fits() -> None:
    assert searched(lambda _: 2 * ROOM) == (0, [1])


@pytest.mark.parametrize(("most", "expected"), [(1, [1]), (8, [1, 2, 4, 8]), (100, [1, 2, 4, 8, 16, 32, 64, 100])])
def test_a_limit_ends_the_search(most: int, expected: list[int]) -> None:
    assert searched(lambda size: size, most=most) == (most, expected)
