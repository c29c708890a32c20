"""Torch's own profilers, as a script uses them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

Peer = Callable[[list[float]], AbstractContextManager[None]]  # appends how many events it recorded, where it tells


def synchronize() -> None:
    """Do nothing: on a CPU, operators return when they are done."""


def _profiler(**settings: bool) -> Peer:
    @contextmanager
    def peer(counted: list[float]) -> Iterator[None]:
        # A thread of its library would otherwise write to stderr; acc_events keeps it from a warning.
        with profile(activities=[ProfilerActivity.CPU], acc_events=True, **settings) as profiler:
            yield
        results: Any = profiler.profiler
        counted.append(len(results.kineto_results.events()))

    return peer


@contextmanager
def _flops(_counted: list[float]) -> Iterator[None]:
    with FlopCounterMode(display=False):
        yield


PEERS: dict[str, Peer] = {
    "torch.profiler": _profiler(),
    "torch.profiler, memory and shapes": _profiler(profile_memory=True, record_shapes=True),
    "torch.profiler, stacks": _profiler(with_stack=True),
    "FlopCounterMode": _flops,
}
