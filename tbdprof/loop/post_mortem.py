"""The memory of a loop when it ran out of memory, recorded as a window of its own.

The window is a memory window without steps: the existing blocks, their owners, and how much memory the allocator and
the device had left. The exception holds the step's frames, so the blocks of the failed step are still live.
"""

import time

import numpy as np

from tbdprof.collect import host
from tbdprof.errors import TbdprofError, UnavailableError
from tbdprof.facts.counters import DEVICE_FREE
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.recorder import Recorder
from tbdprof.facts.records import Strings
from tbdprof.facts.rows import SampleRow, Tables, table
from tbdprof.facts.windows import MEMORY, OUT_OF_MEMORY
from tbdprof.hooks import FrameworkHook
from tbdprof.loop.defect import first_line


def record(error: BaseException | None, hook: FrameworkHook, recorder: Recorder) -> None:
    """Record the memory if an error means out of memory; leave out what cannot be read."""
    said = None if error is None else hook.out_of_memory(error)
    if said is None:
        return
    recorder.update(asked_for=said)
    recording = recorder.recording
    try:
        with recorder.window(OUT_OF_MEMORY) as window:
            recorder.append(window, _what_is_there(hook, recording.strings))
    except Exception as problem:  # each framework has its own exception classes
        if not isinstance(problem, TbdprofError | RuntimeError | MemoryError) and hook.out_of_memory(problem) is None:
            raise
        recording.missing[ReasonFor.LIVE] = first_line(problem)


def _what_is_there(hook: FrameworkHook, strings: Strings) -> Tables:
    on_host = hook.facts().device == "cpu"
    available = host.available_memory_bytes() if on_host else 0
    try:
        hook.start(MEMORY)
    except UnavailableError:  # the memory window's needs can no longer be met
        hook.start(OUT_OF_MEMORY)
    hook.stop()
    tables = dict(hook.drain(strings).tables)
    if on_host:
        free = SampleRow(strings.add(DEVICE_FREE), strings.add("cpu"), time.monotonic_ns(), available)
        read = table("sample", [free])
        tables["sample"] = np.concatenate([read, tables.get("sample", read[:0])])
    return tables
