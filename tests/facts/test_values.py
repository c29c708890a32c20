"""The limits of columns name columns that there are, and every time has limits."""

from tbdprof.facts.rows import KINDS
from tbdprof.facts.values import VALUES, Range


def test_limits_are_of_columns_that_there_are():
    assert VALUES.keys() <= KINDS.keys()
    for kind, columns in VALUES.items():
        assert columns.keys() <= set(KINDS[kind].names or ()), kind


def test_the_time_between_any_two_times_is_a_number_of_64_bits():
    times = {
        (kind, name): VALUES.get(kind, {}).get(name)
        for kind, columns in KINDS.items()
        for name in columns.names or ()
        if name.endswith("_ns")
    }

    assert len(times) >= 9
    for where, limits in times.items():
        assert isinstance(limits, Range), where
        assert -4e18 <= limits.least < limits.most <= 4e18, where
