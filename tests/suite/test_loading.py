"""Threads make batches ahead of need, in order, and leave nothing behind."""

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from fakes import FakeClock

from tbdprof.errors import DataError
from tbdprof.suite.data import loading
from tbdprof.suite.data.loading import AHEAD, Draft, generator, order, prefetch, shuffled

LEFT_OPEN = """
import time
from tbdprof.suite.data.loading import Draft, prefetch
def last(parts): return parts[-1]
batches = prefetch((Draft((lambda: time.sleep(0.01),), last) for _ in iter(int, 1)), workers=2)
next(batches)
print("done")
"""


def of(*tasks: Callable[[], object]) -> Draft[list[object]]:
    return Draft(tasks, list)


def endless(pulled: list[int]) -> Iterator[Draft[list[object]]]:
    """Yield drafts of one task each, and keep count of them."""
    number = 0
    while True:
        pulled.append(number)
        yield of(lambda number=number: number)
        number += 1


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("tbdprof-data")]


def test_batches_come_in_the_order_of_their_drafts_whichever_is_done_first():
    done = threading.Event()
    drafts = [of(lambda: done.wait(10) and "first"), of(lambda: done.set() or "second")]

    assert list(prefetch(drafts, workers=2)) == [["first"], ["second"]]


def test_the_tasks_of_a_batch_run_at_once_and_its_parts_keep_their_order():
    meeting = threading.Barrier(3, timeout=10)  # whoever is alone breaks it

    (batch,) = prefetch([of(*[lambda part=part: meeting.wait() >= 0 and part for part in "abc"])], workers=3)

    assert batch == ["a", "b", "c"]


def test_what_a_task_raises_is_raised_in_its_batchs_place():
    def broken() -> None:
        raise DataError("a.jpg is broken")

    batches = prefetch([of(lambda: 1), of(lambda: 2, broken), of(lambda: 3)], workers=2)

    assert next(batches) == [1]
    with pytest.raises(DataError, match=r"^a\.jpg is broken$"):
        next(batches)
    assert workers() == []


@pytest.mark.parametrize("threads", [1, 4])
def test_no_more_is_begun_ahead_than_keeps_the_threads_busy(threads: int):
    pulled: list[int] = []
    batches = prefetch(endless(pulled), workers=threads)

    for taken in range(1, 4):
        next(batches)
        assert len(pulled) == taken + max(AHEAD, threads + 1)


@pytest.mark.parametrize("leave", [lambda batches: batches.close(), lambda batches: None])
def test_threads_end_when_the_iterator_is_closed_or_collected(leave: Callable[[Iterator[object]], None]):
    batches = prefetch(endless([]), workers=2)
    next(batches)
    assert workers()

    leave(batches)
    del batches
    gc.collect()

    assert workers() == []


def test_a_process_ends_with_batches_left_open():
    done = subprocess.run([sys.executable, "-c", LEFT_OPEN], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_only_the_time_in_which_the_loop_waits_is_waiting(monkeypatch: pytest.MonkeyPatch):
    clock, before = FakeClock(), loading.waited.seconds
    monkeypatch.setattr(loading.time, "perf_counter", lambda: clock.now_ns / 1e9)
    batches = prefetch([of(lambda: clock.sleep(2)) for _ in range(5)], workers=1)

    next(batches)
    assert loading.waited.seconds - before >= 2  # nothing was ready yet
    for _ in batches:
        clock.sleep(100)  # a training step

    assert loading.waited.seconds - before <= 5 * 2


def test_every_pass_has_every_sample_once_in_an_order_of_its_own():
    indices = shuffled(50, seed=3)
    passes = [[next(indices) for _ in range(50)] for _ in range(3)]

    assert all(sorted(each) == list(range(50)) for each in passes)
    assert len({tuple(each) for each in [*passes, list(range(50))]}) == 4


def test_orders_and_samples_follow_the_seed_and_the_number_alone():
    assert order(50, 3, 1).tolist() == order(50, 3, 1).tolist()
    assert order(50, 3, 1).tolist() != order(50, 4, 1).tolist()
    assert generator(3, 1).random() == generator(3, 1).random()
    assert len({generator(seed, number).random() for seed in (3, 4) for number in (0, 1)}) == 4
