"""The kind of an event of torch's profiler, under Kineto's names.

Releases before torch 2.13 may not report the kind. Then it is inferred from where the event happened, whether it is an
annotation, and its name. Calls of the CUDA runtime and of the driver have names of one form. Copies and memsets have
CUPTI's names.
"""

import re
from typing import Protocol

from torch._C._autograd import DeviceType

OPERATOR, ANNOTATION = "cpu_op", "user_annotation"
KERNEL, COPY, SET, RUNTIME = "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime"
OTHER = ""  # not used here: waiting on a GPU's stream, the profiler's own work

_CALL = re.compile(r"cu(da)?[A-Z]\w*$")
_OF_GPU = (
    (re.compile(r"Memcpy\b"), COPY),
    (re.compile(r"Memset\b"), SET),
    (re.compile(r"(Context|Stream|Event) (Sync|Wait)"), OTHER),
)
_OVERHEAD = re.compile(
    r"(Activity Buffer Request|Buffer Flush|Instrumentation|Resource|Lazy Function Loading|Runtime Triggered Module "
    r"Loading|Command Buffer Full|CUPTI\b.*|Unknown)$"
)


class Event(Protocol):
    """The methods of an event that are used here."""

    def name(self) -> str:
        """Return the name of an operator, a call or a kernel."""

    def device_type(self) -> DeviceType:
        """Return the type of device on which it happened."""

    def is_user_annotation(self) -> bool:
        """Return whether it is a range named by a user, on the host or a GPU."""


def kind_of(event: Event) -> str:
    """Return Kineto's name of the kind of `event`, or `OTHER`."""
    activity_type = getattr(event, "activity_type", None)
    return _inferred(event) if activity_type is None else str(activity_type())


def _inferred(event: Event) -> str:
    on_host = event.device_type() == DeviceType.CPU
    if event.is_user_annotation():
        return ANNOTATION if on_host else OTHER
    name = event.name()
    if on_host:
        if _CALL.match(name):
            return RUNTIME
        return OTHER if _OVERHEAD.match(name) else OPERATOR
    return next((kind for pattern, kind in _OF_GPU if pattern.match(name)), KERNEL)
