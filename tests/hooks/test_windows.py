import pytest

from tbdprof.errors import UnavailableError, UsageError
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained
from tbdprof.hooks.windows import Windows


class Counted:
    """Counts its steps; ends only where it is not `stuck`."""

    def __init__(self, *, stuck: bool = False) -> None:
        self.steps, self.stops, self.stuck = 0, 0, stuck

    def mark_step(self) -> None:
        self.steps += 1

    def stop(self) -> None:
        self.stops += 1
        if self.stuck:
            raise KeyboardInterrupt

    def drain(self, strings: Strings) -> Drained:
        return Drained({}, list(range(self.steps)))


def unavailable() -> Counted:
    raise UnavailableError("another profiler is active")


def drained(windows: Windows) -> list[int]:
    return list(windows.drain(Strings()).marks)


def test_a_window_is_drained_once_after_its_end() -> None:
    windows = Windows()
    windows.begin("memory", {"memory": Counted})
    windows.mark_step()
    windows.mark_step()
    assert drained(windows) == []
    windows.stop()
    assert drained(windows) == [0, 1]
    assert drained(windows) == []


def test_without_an_open_window_nothing_is_marked_and_nothing_ends_twice() -> None:
    windows, window = Windows(), Counted()
    windows.mark_step()
    windows.stop()
    windows.begin("memory", {"memory": lambda: window})
    windows.stop()
    windows.mark_step()
    windows.stop()
    assert (window.steps, window.stops) == (0, 1)


def test_an_unknown_name_is_refused_and_the_known_ones_are_listed() -> None:
    with pytest.raises(UsageError, match=r"unknown window 'kernel': choose memory or kernels"):
        Windows().begin("kernel", {"memory": Counted, "kernels": Counted})


def test_no_window_begins_while_another_is_open() -> None:
    windows, first, second = Windows(), Counted(), Counted()
    windows.begin("memory", {"memory": lambda: first})
    with pytest.raises(UsageError, match="before the kernels window begins"):
        windows.begin("kernels", {"kernels": lambda: second})
    windows.mark_step()
    windows.stop()
    assert (first.steps, first.stops, second.steps) == (1, 1, 0)


def test_a_window_that_cannot_begin_is_not_open() -> None:
    windows = Windows()
    with pytest.raises(UnavailableError):
        windows.begin("memory", {"memory": unavailable})
    windows.begin("memory", {"memory": Counted})
    windows.stop()
    assert drained(windows) == []


def test_a_window_whose_end_raises_is_ended_once_and_can_be_drained() -> None:
    windows, window = Windows(), Counted(stuck=True)
    windows.begin("memory", {"memory": lambda: window})
    windows.mark_step()
    with pytest.raises(KeyboardInterrupt):
        windows.stop()
    windows.stop()
    assert window.stops == 1
    assert drained(windows) == [0]
