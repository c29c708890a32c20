"""What is read of a session's events."""

from tbdprof.hooks.on_torch.session.events import MemoryEvent
from tbdprof.hooks.on_torch.session.reading import _Reader
from tbdprof.hooks.on_torch.session.session import Recorded


def memory(thread: int, address: int, size: int, total: int, device: str = "cpu") -> MemoryEvent:
    return MemoryEvent(device, thread, address, size, total, was_tensor=True)


def test_what_other_threads_allocate_beside_the_probe_is_counted_without_it() -> None:
    reader = _Reader(Recorded(None, 0, 100), {}, lambda *_: None, {})  # type: ignore[arg-type]
    probe = [memory(1, 1, 4, 104), memory(1, 1, -4, 140)]
    reader._probe = probe
    beside = [memory(2, 2, 40, 144), memory(2, 3, 8, 8, "cuda:0"), memory(2, 4, 16, 0)]  # the last one is shared
    after = memory(2, 5, 1, 141)
    found = reader._within_window(list(enumerate([memory(2, 9, 2, 100), probe[0], *beside, probe[1], after])))

    assert [event.total_bytes for _, event in found if isinstance(event, MemoryEvent)] == [140, 8, 0, 141]
