"""Record a device's kernels, copies and memsets with CUPTI, for frameworks whose own profiler does not.

A process can have one client of CUPTI's activity records, so this never runs beside torch's or TensorFlow's profiler. A
subscription at the start detects any other client. CUPTI hands over records through callbacks in Python, which it calls
while it holds a lock. So its buffers are large, which makes this rare while the loop runs. Records are requested only
while the device is idle, by a thread that is waited for no longer than a limit.

cupti-python supports devices of compute capability 7.5 and later, and its library needs a driver of its own CUDA
version or a newer one. A program may bring an older runtime, as MXNet's builds for CUDA 11 do. So the driver's calls
are recorded beside the runtime's, and a launch has its thread whichever of them CUPTI reports.
"""

import ctypes
import importlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from tbdprof.collect import Collected
from tbdprof.collect.activity import clock_fit
from tbdprof.collect.activity.records import Records, asking, kernels
from tbdprof.errors import UnavailableError
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.records import Strings
from tbdprof.facts.rows import table

KINDS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET")  # not KERNEL, which serializes kernels
BUFFER_BYTES = 64 << 20
FLUSH_LIMIT_S = 30.0
_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
_TAKEN = 39  # CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
_ROOT = "the driver keeps them for root: load its module with NVreg_RestrictProfilingToAdminUsers=0"
_REASONS = {
    15: "CUPTI cannot begin: it is newer than the driver, or a part of it is not found",
    26: "another profiler holds the device",
    27: "CUPTI does not support this device",
    33: "CUPTI does not support this virtual device",
    35: _ROOT,
    40: "the owner of this virtual device does not let it be profiled",
    41: "the device is in confidential computing mode, which cannot be profiled",
    45: "CUPTI does not support devices under Windows",
}
_NOT_INSTALLED = "CUPTI's records need cupti-python: pip install 'tbdprof[counters]'"
_HANGS = "CUPTI had not handed over its records after {:g} s: this window's are left out, and no more are asked for"


class _Receiver:
    """The callbacks that CUPTI calls; kept as long as the process lives, as CUPTI may write into unreturned buffers."""

    def __init__(self) -> None:
        self.records: Records | None = None  # None: discard what comes now
        _KEPT.append(self)

    def request(self) -> tuple[int, int]:
        return BUFFER_BYTES, 0  # as many records as fit

    def take(self, activities: Iterable[Any]) -> None:
        records = self.records
        if records is not None:
            records.take(activities)


_KEPT: list[_Receiver] = []


def available(cupti: Any = None) -> str | None:
    """Return why this process cannot get CUPTI's records now, or None if it can; subscribe once, and unsubscribe.

    `cupti` can replace the module of cupti-python.
    """
    try:
        cupti = _load() if cupti is None else cupti
        with _translated(cupti):
            cupti.unsubscribe(_subscribed(cupti))
            cupti.get_timestamp()
    except UnavailableError as error:
        return str(error)
    return None


class ActivityCollector:
    """Records kernels with thread and time of their launch, which lead to their operators; a `Collector`."""

    name: str = ReasonFor.ACTIVITY

    def __init__(
        self,
        cupti: Any = None,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        limit_s: float = FLUSH_LIMIT_S,
        number_of_thread: Callable[[int], int] = int,
    ) -> None:
        """Take a replacement for cupti-python, and how the framework's hook numbers threads in its spans."""
        self._cupti, self._clock, self._limit_s = cupti, clock, limit_s
        self._number = number_of_thread
        self._process = os.getpid()
        self._receiver = _Receiver()
        self._hangs = False
        self._ends: tuple[ExitStack, ExitStack] | None = None  # of subscription and kinds; None if not recording
        self._records: Records | None = None
        self._pairs: list[clock_fit.Pair] = []
        self._missing: dict[str, str] = {}
        self._dropped = 0

    def start(self, window: str) -> None:
        """Make CUPTI record; raise UnavailableError if it has another client, is not permitted, or is missing."""
        if self._hangs:
            raise UnavailableError(_HANGS.format(self._limit_s))
        cupti = self._cupti = _load() if self._cupti is None else self._cupti
        self._missing, self._dropped = {}, 0
        with _translated(cupti), ExitStack() as ends:
            self._records = self._receiver.records = Records(cupti)
            ends.callback(cupti.unsubscribe, _subscribed(cupti))
            cupti.activity_register_callbacks(self._receiver.request, self._receiver.take)
            self._pairs = [clock_fit.pair(cupti.get_timestamp, self._clock)]
            kinds = ends.enter_context(ExitStack())
            _begin(cupti, kinds)
            self._ends = ends.pop_all(), kinds

    def stop(self) -> None:
        """Request the records and release CUPTI; if it does not answer within the limit, leave it alone."""
        ends, self._ends = self._ends, None
        if ends is None or self._process != os.getpid():
            return
        finish = threading.Thread(target=self._finish, args=ends, name="tbdprof-cupti", daemon=True)
        finish.start()
        finish.join(self._limit_s)
        self._receiver.records = None
        if finish.is_alive():
            self._hangs, self._records = True, None
            self._missing = {self.name: _HANGS.format(self._limit_s)}

    def drain(self, strings: Strings) -> Collected:
        """Return the kernels, how well the clocks agree, and how many records were lost."""
        records, self._records = self._records, None
        missing, self._missing = self._missing, {}
        if records is None or not self._pairs:
            return Collected({}, missing)
        line = clock_fit.fit(self._pairs)
        found = kernels(records, line, strings, self._number, self._dropped)
        first, last = self._pairs[0][0], self._pairs[-1][2]
        samples = table("sample", found.samples(strings, -1, first, last))
        return Collected({"kernel": found.kernels, "sample": samples}, missing | found.missing())

    def close(self) -> None:
        """Stop recording, if it is on."""
        self.stop()

    def _finish(self, ends: ExitStack, kinds: ExitStack) -> None:
        cupti: Any = self._cupti
        try:
            with _translated(cupti), ends:
                self._pairs.append(clock_fit.pair(cupti.get_timestamp, self._clock))
                kinds.close()
                cupti.activity_flush_all(_FORCED)
                self._dropped = _dropped(cupti)
        except UnavailableError as error:
            if not self._hangs:
                self._missing[ReasonFor.ACTIVITY] = str(error)


def _begin(cupti: Any, ends: ExitStack) -> None:
    """Enable the kinds of records, and among calls only those that launch work on the device."""
    for kind in KINDS:
        number = getattr(cupti.ActivityKind, kind)
        cupti.activity_enable(number)
        ends.callback(cupti.activity_disable, number)
    of_runtime, of_driver = asking(cupti).values()
    for switch, calls in (
        (cupti.activity_enable_runtime_api, of_runtime),
        (cupti.activity_enable_driver_api, of_driver),
    ):
        ends.callback(_switch, cupti, switch, calls, 0)
        _switch(cupti, switch, calls, 1)


def _switch(cupti: Any, switch: Callable[[int, int], None], calls: Iterable[int], to: int) -> None:
    for number in calls:
        with suppress(cupti.cuptiError):  # the library is older than this call
            switch(number, to)


def _subscribed(cupti: Any) -> Any:
    try:
        return cupti.subscribe(_heard, None)
    except cupti.cuptiError as error:
        if error.status != _TAKEN:
            raise
        raise UnavailableError(f"another tool records what the device does: {_other(cupti)}") from error


def _heard(*arguments: object) -> None:
    """Ignore the arguments: the subscription serves only to detect another client."""


def _other(cupti: Any) -> str:
    """Return the name of the other subscriber."""
    name, unknown = "", "its name is not known"
    try:
        asked = cupti.SubscriberParams()
        asked.struct_size = cupti.SUBSCRIBER_PARAMS_SIZE
        asked.subscriber_name = "tbdprof"
        try:
            cupti.unsubscribe(cupti.subscribe_v2(_heard, None, asked.ptr))
        except cupti.cuptiError as error:
            name = str(asked.old_subscriber_name) if error.status == _TAKEN else ""
    except (AttributeError, RuntimeError, ValueError):  # an older library lacks the call; the name may be unset
        return unknown
    return name if name and name.isprintable() else unknown


def _dropped(cupti: Any) -> int:
    dropped = ctypes.c_size_t()
    cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(dropped))
    return dropped.value


def _load() -> Any:
    try:
        return importlib.import_module("cupti.cupti")
    except ModuleNotFoundError as error:
        raise UnavailableError(_NOT_INSTALLED) from error
    except (ImportError, OSError, RuntimeError) as error:
        raise UnavailableError(f"cupti-python cannot be imported: {error}") from error


@contextmanager
def _translated(cupti: Any) -> Iterator[None]:
    try:
        yield
    except cupti.cuptiError as error:
        raise UnavailableError(_REASONS.get(error.status, f"CUPTI refuses: {error}")) from error
    except (RuntimeError, AttributeError) as error:  # no driver, no library, or a call that one of them lacks
        raise UnavailableError(f"CUPTI does not answer: {error}") from error
