"""A trial of one batch size, in a process of its own: a few steps, and the memory they used."""

import json
import sys

from tbdprof import suite
from tbdprof.collect.gpu import context, cuda_driver
from tbdprof.collect.host_memory import HostUse
from tbdprof.facts.windows import MEMORY
from tbdprof.hooks import FrameworkHook, load
from tbdprof.launch.request import RunRequest
from tbdprof.loop.new_run import listed, new_run
from tbdprof.loop.plan import Plan
from tbdprof.loop.profiler import LoopProfiler

PLAN = Plan(warmup=1, windows=(MEMORY,), memory_steps=3)


def main(order: str) -> None:
    """Take a few steps of a request (in JSON), and print the memory they used as JSON."""
    request = RunRequest.from_json(order)
    hook = load(request.framework)
    hook.prepare(request.setting())
    room = _Room(hook.facts().device)
    took: int | None = None
    try:
        _train(hook, request)
        took = room.taken_bytes()
    except Exception as error:  # each framework has its own exception classes
        if hook.out_of_memory(error) is None:
            raise
    finally:
        hook.close()
    sys.stdout.write(json.dumps({"took_bytes": took, "room_bytes": room.bytes}) + "\n")


def _train(hook: FrameworkHook, request: RunRequest) -> None:
    """Train as a run does, with a memory window: it takes more of the host's memory than other steps."""
    workload = suite.build(request.model, request.framework, request.config())
    hook.watch(listed(workload.model), listed(workload.optimizer), listed(workload.inputs))
    profiler = LoopProfiler(hook, new_run(request.model, request.framework, unit="samples"), PLAN)
    profiler.start()
    while profiler.active:
        profiler.step(workload.step())


class _Room:
    """The memory available when this is created, and the most of it that was used since."""

    def __init__(self, device: str) -> None:
        self._index = None if device == "cpu" else cuda_driver.index_of(device)
        self._host = HostUse()
        self.bytes = self._host.room_bytes if self._index is None else _free_bytes(self._index)

    def taken_bytes(self) -> int:
        """Return the most bytes that were used; a GPU's allocator keeps what it once had."""
        return self._host.taken_bytes() if self._index is None else self.bytes - _free_bytes(self._index)


def _free_bytes(index: int) -> int:
    return context.free_and_total_bytes(index)[0]
