"""Actors run side by side: their updates are taken one at a time, they pause, they end, and what one raises is seen."""

import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tbdprof.errors import UsageError
from tbdprof.suite.a3c.actors import Actors, Gate

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 10.0  # seconds until a test that waits for another thread gives up


class Worker:
    """An actor's update that counts how often it was made, and may be held up."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.threads: set[int] = set()
        self.may_end = threading.Event()
        self.may_end.set()
        self.error: BaseException | None = None

    def __call__(self) -> float:
        self.begun += 1
        self.threads.add(threading.get_ident())
        assert self.may_end.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        self.ended += 1
        return 5.0


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread."""
    gives_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < gives_up, "another thread did not come so far"
        time.sleep(0.001)


@pytest.fixture
def workers() -> list[Worker]:
    return [Worker(), Worker()]


@pytest.fixture
def actors(workers: list[Worker]) -> Iterator[Actors]:
    made = Actors(workers)
    yield made
    for worker in workers:
        worker.may_end.set()
    made.close()


def test_a_single_actor_trains_in_the_thread_that_asks() -> None:
    worker = Worker()
    alone = Actors([worker])

    assert [alone.step(), alone.step()] == [5.0, 5.0]
    alone.pause()
    assert alone.step() == 5.0
    assert (worker.begun, worker.threads) == (3, {threading.get_ident()})
    alone.close()
    with pytest.raises(UsageError, match="build the model anew"):
        alone.step()


def test_each_of_several_has_a_thread_of_its_own(actors: Actors, workers: list[Worker]) -> None:
    def both_took_a_step() -> bool:  # on a busy machine one of them may take many before the other starts
        assert actors.step() == 5.0
        return all(worker.begun for worker in workers)

    until(both_took_a_step)
    for _ in range(50):
        actors.step()

    threads = [worker.threads for worker in workers]
    assert [len(each) for each in threads] == [1, 1]
    assert len({threading.get_ident()}.union(*threads)) == 3


def test_nothing_runs_before_the_first_step(actors: Actors, workers: list[Worker]) -> None:
    actors.pause()

    assert [worker.begun for worker in workers] == [0, 0]
    assert not any(thread.name.startswith("actor") for thread in threading.enumerate())


def test_an_actor_is_at_most_one_update_ahead_of_the_loop(actors: Actors, workers: list[Worker]) -> None:
    for step in range(1, 21):
        actors.step()
        assert sum(worker.ended for worker in workers) <= step + 2

    until(lambda: sum(worker.ended for worker in workers) == 20 + 1)  # that of the one that was not taken last
    time.sleep(0.05)
    assert sum(worker.ended for worker in workers) == 20 + 1


def test_one_that_is_held_up_does_not_hold_up_the_other(actors: Actors, workers: list[Worker]) -> None:
    workers[0].may_end.clear()
    for _ in range(10):
        actors.step()

    assert (workers[0].ended, workers[1].ended) == (0, 10)


def test_a_pause_waits_for_the_updates_under_way_and_lets_none_begin(actors: Actors, workers: list[Worker]) -> None:
    actors.step()
    workers[0].may_end.clear()
    workers[1].may_end.clear()
    # Whoever was not taken has begun, or it is ahead already, and rests.
    other = threading.Thread(target=actors.step)
    other.start()
    until(lambda: any(worker.begun > worker.ended for worker in workers))
    for worker in workers:
        worker.may_end.set()
    other.join()
    actors.pause()
    seen = [(worker.begun, worker.ended) for worker in workers]
    time.sleep(0.05)

    assert all(begun == ended for begun, ended in seen)
    assert [(worker.begun, worker.ended) for worker in workers] == seen


def test_a_pause_does_not_return_while_one_computes(actors: Actors, workers: list[Worker]) -> None:
    workers[0].may_end.clear()
    actors.step()
    until(lambda: workers[0].begun == 1)
    paused = threading.Event()
    pausing = threading.Thread(target=lambda: (actors.pause(), paused.set()))
    pausing.start()

    assert not paused.wait(0.05)
    workers[0].may_end.set()
    assert paused.wait(PATIENCE)
    pausing.join()
    assert workers[0].ended == 1


def test_updates_are_taken_once_each_whatever_the_pauses(actors: Actors, workers: list[Worker]) -> None:
    for _ in range(10):
        for _ in range(7):
            actors.step()
        actors.pause()

    assert 70 <= sum(worker.ended for worker in workers) <= 70 + 1


def test_what_an_actor_raises_is_raised_by_the_step_and_ends_the_others(actors: Actors, workers: list[Worker]) -> None:
    actors.step()
    workers[1].error = ValueError("no such action")

    with pytest.raises(ValueError, match="no such action"):
        until(lambda: actors.step() < 0)  # on a busy machine the other one may take many steps before this one starts
    with pytest.raises(ValueError, match="no such action"):
        actors.step()
    actors.pause()
    actors.close()
    assert not any(thread.name.startswith("actor") for thread in threading.enumerate())


def test_closing_ends_the_threads_after_their_updates(actors: Actors, workers: list[Worker]) -> None:
    actors.step()
    actors.close()
    actors.close()

    assert [worker.begun for worker in workers] == [worker.ended for worker in workers]
    assert not any(thread.name.startswith("actor") for thread in threading.enumerate())
    with pytest.raises(UsageError, match="build the model anew"):
        actors.step()


def test_actors_that_are_let_go_end(workers: list[Worker]) -> None:
    actors = Actors(workers)
    actors.step()
    del actors
    gc.collect()

    until(lambda: not any(thread.name.startswith("actor") for thread in threading.enumerate()))


def test_an_interrupt_of_the_loop_comes_through_while_it_waits(actors: Actors, workers: list[Worker]) -> None:
    for worker in workers:
        worker.may_end.clear()
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))  # as Ctrl-C does
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        actors.step()
    timer.join()

    for worker in workers:
        worker.may_end.set()
    assert actors.step() == 5.0


FORGOTTEN = """
import time
from tbdprof.suite.a3c.actors import Actors
actors = Actors([lambda: time.sleep(0.01) or 5.0] * 3)
print(sum(actors.step() for _ in range(5)))
"""


def test_a_program_that_closes_nothing_ends(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORGOTTEN], capture_output=True, text=True, timeout=60, env={"PYTHONPATH": str(ROOT)}
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "25.0\n", "")


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_pause_is_cut_out_of_the_actors_time() -> None:
    """Two actors whose updates last 10 s, half an update apart, by hand on one thread."""
    clock = Clock()
    gate = Gate(clock)
    opened(gate)
    assert gate.enter(0)
    clock.now = 5.0
    assert gate.enter(1)
    clock.now = 10.0
    gate.leave(0, 1.0)
    assert gate.take() == 1.0  # and actor 0 rests, as nobody asks for more

    pausing = threading.Thread(target=gate.pause)
    pausing.start()
    until(lambda: not gate._open)
    clock.now = 15.0
    gate.leave(1, 2.0)  # 5 s after the pause began
    pausing.join()
    clock.now = 1000.0
    taken: list[float] = []
    taking = threading.Thread(target=lambda: taken.append(gate.take()))
    taking.start()
    until(lambda: gate._open)
    assert gate.enter(0)  # at once
    assert not gate._may_begin(1)
    clock.now = 1004.9
    nudge(gate)
    assert taken == []
    clock.now = 1005.0
    nudge(gate)
    taking.join(PATIENCE)
    assert taken == [2.0]


def test_what_was_finished_before_a_pause_is_taken_at_once_after_it() -> None:
    clock = Clock()
    gate = Gate(clock)
    opened(gate)
    assert gate.enter(0)
    gate.leave(0, 3.0)
    clock.now = 7.0
    gate.pause()
    gate.pause()
    clock.now = 70.0

    assert gate.take() == 3.0


def opened(gate: Gate) -> None:
    """Ask for an update, as a loop does that has not taken any."""
    with gate._changed:
        gate._go_on()


def nudge(gate: Gate) -> None:
    """Have all that wait look at the clock."""
    time.sleep(0.01)
    with gate._changed:
        gate._changed.notify_all()
    time.sleep(0.01)
