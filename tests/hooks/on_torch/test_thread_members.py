"""When a thread joins a session of torch's profiler and leaves it, and when a session may end."""

import gc
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch._C._autograd import _profiler_type
from torch._C._profiler import ActiveProfilerType

from tbdprof.hooks.on_torch.memory.ledger import Ledger, Place
from tbdprof.hooks.on_torch.session import session as sessions
from tbdprof.hooks.on_torch.session.events import Existing, MemoryEvent
from tbdprof.hooks.on_torch.session.session import Session
from tbdprof.hooks.on_torch.watch.thread_members import Members


@pytest.fixture
def members() -> Iterator[Members]:
    """Members that join and leave only where the test says so."""
    gc.disable()
    yield Members()
    gc.enable()


def backward(action: Callable[[], object]) -> None:
    """Do something in Python inside a backward pass."""
    weight = torch.ones(3, requires_grad=True)
    doubled = weight * 2

    def act(_: torch.Tensor) -> None:
        action()

    doubled.register_hook(act)
    doubled.sum().backward()


def is_followed() -> bool:
    return bool(_profiler_type() != ActiveProfilerType.NONE)


def in_thread(action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def test_a_thread_that_looks_inside_a_backward_pass_joins_after_it(members: Members) -> None:
    """Torch would set it back at the end of the pass: counted as a member, but not followed."""
    seen: list[bool] = []

    def train() -> None:
        members._leave()  # it joined when it started
        backward(members.check)
        seen.append(is_followed())
        members.check()
        seen.append(is_followed())
        members._leave()

    session = Session("memory", threads=members)
    in_thread(train)
    session.end()

    assert seen == [False, True]


def test_a_thread_that_looks_inside_a_backward_pass_leaves_after_it(members: Members) -> None:
    """Torch would let it join again at the end of the pass, when the session may have ended."""
    seen: list[bool] = []

    def train() -> None:
        members.check()
        members._is_open = False
        backward(members.check)
        seen.append(is_followed() == (members._own.membership is not None))
        members.check()
        seen.append(is_followed())
        members._is_open = True

    session = Session("memory", threads=members)
    in_thread(train)
    session.end()

    assert seen == [True, False]


def test_what_is_marked_inside_a_backward_pass_is_followed(members: Members) -> None:
    seen: list[bool] = []

    def train() -> None:
        members._leave()
        backward(lambda: members.act(lambda: seen.append(is_followed())))
        seen.append(is_followed())

    session = Session("memory", threads=members)
    in_thread(train)
    session.end()

    assert seen == [True, False]


def test_a_session_of_all_threads_records_nothing_new_once_it_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it ends while others write into it: torch 2.13 crashed at that."""
    waited: list[float] = []

    def others_go_on(most_s: float) -> None:
        in_thread(lambda: torch.ones(3).sigmoid())
        waited.append(most_s)

    monkeypatch.setattr(sessions, "let_others_move", others_go_on)
    session = Session("kernels")
    in_thread(lambda: torch.ones(3).cos())
    names = {event.name() for event in session.end().result.events()}

    assert waited
    assert "aten::cos" in names
    assert "aten::sigmoid" not in names


def test_a_block_found_after_the_last_event_belongs_to_the_total() -> None:
    """Torch counted it when another thread made it, but no event has told the total since."""
    ledger = Ledger(iter(range(1, 9)), cpu_bytes_at_begin=100, counted_from_start=True)
    ledger.exists(Existing("cpu", 1, 100, (25,)), 0)
    ledger.appeared([Existing("cpu", 2, 40, (10,))], Place(-1, 1, -1))
    ledger.happened(MemoryEvent("cpu", 1, 3, 8, 148, was_tensor=True), Place(1, 2, -1))

    assert [row.total_bytes for row in ledger._rows] == [-1, 140, 148]
