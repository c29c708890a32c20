"""A CUPTI that does as a test asks: the names of cupti-python 13.4's module `cupti.cupti`, with records made by hand.

Its clock counts nanoseconds of the wall; what is put into `records` is delivered when a flush is forced.
"""

# ruff: noqa: N815 - its names are the library's

import ctypes
import enum
import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

WALL_NS = 1_780_000_000_000_000_000


class CuptiError(Exception):
    """What the library's refusals are raised as."""

    def __init__(self, status: int) -> None:
        super().__init__(f"ERROR ({status})")
        self.status = status


class ActivityKind(enum.IntEnum):
    """Those that are asked for, with the library's numbers."""

    MEMCPY = 1
    MEMSET = 2
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10
    MEMCPY2 = 22


class RuntimeApiTraceCbid(enum.IntEnum):
    """Some calls of the runtime; the last as nvcc of CUDA 13 launches."""

    cudaMalloc_v3020 = 20
    cudaMemcpyAsync_v3020 = 41
    cudaMemsetAsync_v3020 = 51
    cudaLaunchKernel_v7000 = 211
    cudaLaunchHostFunc_v10000 = 284
    cudaGraphAddMemcpyNode_v10000 = 290
    cudaGraphLaunch_v10000 = 311


# From Python 3.11 on, a name in the class's body with two underscores becomes such an attribute.
RuntimeApiTraceCbid._RuntimeApiTraceCbid__cudaLaunchKernel_v13000 = 505


class DriverApiTraceCbid(enum.IntEnum):
    """Some calls of the driver."""

    cuMemAlloc_v2 = 243
    cuLaunchKernel = 307


def _record(kind: int, correlation: int, start_ns: int, end_ns: int, **fields: Any) -> SimpleNamespace:
    times = {"start": WALL_NS + start_ns, "end": WALL_NS + end_ns}
    return SimpleNamespace(kind=int(kind), correlation_id=correlation, **times, **fields)


def kernel(name: str, correlation: int, start_ns: int, end_ns: int, **fields: Any) -> SimpleNamespace:
    """Return the record of a kernel on stream 7 of device 0, of 2 blocks of 128 threads."""
    size = {"grid_x": 2, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
    use = {"registers_per_thread": 32, "static_shared_memory": 1024, "dynamic_shared_memory": 512}
    where = {"device_id": 0, "stream_id": 7, "graph_id": 0, **fields}
    return _record(ActivityKind.CONCURRENT_KERNEL, correlation, start_ns, end_ns, name=name, **size, **use, **where)


def moved(kind: ActivityKind, correlation: int, start_ns: int, end_ns: int, **fields: Any) -> SimpleNamespace:
    """Return the record of a copy or a set of 4096 bytes on stream 13 of device 0."""
    where = {"device_id": 0, "stream_id": 13, "graph_id": 0, "bytes": 4096, "copy_kind": 1, **fields}
    return _record(kind, correlation, start_ns, end_ns, **where)


def call(number: int, correlation: int, start_ns: int, *, thread: int = 0, returned: int = 0) -> SimpleNamespace:
    """Return the record of a call, of the runtime or the driver by its number; a thread has 32 bits."""
    kind = ActivityKind.DRIVER if isinstance(number, DriverApiTraceCbid) else ActivityKind.RUNTIME
    fields = {"cbid": int(number), "thread_id": thread & 0xFFFFFFFF, "process_id": 1, "return_value": returned}
    return _record(kind, correlation, start_ns, start_ns + 2_000, **fields)


class FakeCupti:
    """The module; `fails` has a status, or an error, by the function that is to fail."""

    cuptiError = CuptiError
    ActivityKind = ActivityKind
    RuntimeApiTraceCbid = RuntimeApiTraceCbid
    DriverApiTraceCbid = DriverApiTraceCbid
    SUBSCRIBER_PARAMS_SIZE = 40

    def __init__(self, clock: Callable[[], int], fails: dict[str, int | Exception] | None = None) -> None:
        self.clock = clock
        self.fails = fails or {}
        self.records: list[object] = []
        self.dropped = 0
        self.other = "CUPTI for Kineto"
        self.hang: threading.Event | None = None  # a flush waits for it
        self.calls: list[str] = []
        self.enabled: set[tuple[str, int]] = set()
        self.is_subscribed = False
        self._take: Callable[[Iterable[object]], None] | None = None

    def get_timestamp(self) -> int:
        self._may_fail("get_timestamp")
        return WALL_NS + self.clock()

    def subscribe(self, callback: Callable[..., None], userdata: object) -> int:
        self._may_fail("subscribe")
        self.is_subscribed = True
        return 99

    def subscribe_v2(self, callback: Callable[..., None], userdata: object, params: int) -> int:
        raise CuptiError(39)

    def SubscriberParams(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(struct_size=0, subscriber_name="", ptr=1, old_subscriber_name=self.other)

    def unsubscribe(self, subscriber: int) -> None:
        assert subscriber == 99
        self.calls.append("unsubscribe")
        self.is_subscribed = False

    def activity_register_callbacks(self, request: Callable[[], tuple[int, int]], take: Callable[..., None]) -> None:
        size, most = request()
        assert size >= 1 << 20
        assert most == 0
        self._take = take

    def activity_enable(self, kind: int) -> None:
        self._may_fail("activity_enable")
        self.enabled.add(("kind", int(kind)))

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(("kind", int(kind)))

    def activity_enable_runtime_api(self, number: int, enable: int) -> None:
        self._switch("runtime", number, enable)

    def activity_enable_driver_api(self, number: int, enable: int) -> None:
        self._may_fail("activity_enable_driver_api")
        self._switch("driver", number, enable)

    def activity_flush_all(self, flag: int) -> None:
        self.calls.append(f"flush {flag}")
        if self.hang is not None:
            self.hang.wait()
        self._may_fail("activity_flush_all")
        taken, self.records = self.records, []
        assert self._take is not None
        self._take(taken)

    def activity_get_num_dropped_records(self, context: int, stream: int, into: int) -> None:
        assert self.is_subscribed
        ctypes.c_size_t.from_address(into).value, self.dropped = self.dropped, 0

    def _switch(self, which: str, number: int, enable: int) -> None:
        (self.enabled.add if enable else self.enabled.discard)((which, number))

    def _may_fail(self, name: str) -> None:
        error = self.fails.get(name)
        if isinstance(error, Exception):
            raise error
        if error is not None:
            raise CuptiError(error)
