"""A session of TensorFlow's profiler.

session = Session()      # nothing yet
session.start()          # raises UnavailableError if another profiler is running
session.mark("name")     # a MarkEvent, on this thread, now
trace = session.stop()   # everything, on one clock
"""

import ctypes
import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import tensorflow as tf
from tensorflow.python.profiler.internal import _pywrap_traceme

from tbdprof.collect.clock import wall_offset_ns
from tbdprof.errors import UnavailableError
from tbdprof.hooks.on_tensorflow.session import xplane
from tbdprof.hooks.on_tensorflow.session.events import MARK, Trace
from tbdprof.hooks.waiting import waits

_SHARED_MEMORY = Path("/dev/shm")
_LIBRARY = "libtensorflow_framework.so.2"
_LEVEL = "_ZN3tsl8profiler8internal13g_trace_levelE"  # tsl::profiler::internal::g_trace_level, a std::atomic<int>
_NO_THREAD_POOLS = "_ZN3tsl8profiler19threadpool_listener10DeactivateEv"  # threadpool_listener::Deactivate()
_VERBOSE = 3  # tsl::profiler::TraceMeLevel::kVerbose


class Session:
    """One session; sessions follow one another in a process, and only one can be open at a time."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._offset_ns = 0
        self._leaves_out = False

    def start(self) -> None:
        """Begin; raise UnavailableError if another session of this process is open."""
        place = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
        folder = Path(tempfile.mkdtemp(prefix="tbdprof-", dir=place))
        try:
            tf.profiler.experimental.start(str(folder))
        except tf.errors.AlreadyExistsError as error:
            shutil.rmtree(folder)
            raise UnavailableError("another profiler of TensorFlow is running in this process") from error
        except BaseException:
            shutil.rmtree(folder)
            raise
        self._leaves_out = not _trace_cheap_operators()
        _leave_out_thread_pools()
        self._folder, self._offset_ns = folder, wall_offset_ns()

    @waits
    def mark(self, name: str) -> None:
        """Put a marker into the trace, after everything this thread did before."""
        _pywrap_traceme.TraceMe(MARK + name).Stop()

    def stop(self, *, of_memory_alone: bool = False) -> Trace:
        """End; return all events, or only those of memory; raise UnavailableError if the trace cannot be read."""
        folder, self._folder = self._folder, None
        if folder is None:
            return Trace()
        try:
            tf.profiler.experimental.stop()
            return replace(_read(folder, self._offset_ns, of_memory_alone), leaves_out=self._leaves_out)
        except tf.errors.UnavailableError as error:
            raise UnavailableError("another profiler ended the session") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _trace_cheap_operators() -> bool:
    """Make the open session trace every operator; return whether that is possible.

    The executor lowers its estimate of an operator's cost with each run. It traces operators that it considers cheap at
    a higher level than a session records, and a session's level cannot be chosen (TensorFlow 2.21 ignores
    `ProfilerOptions`). After about ninety runs most operators of a small network would be missing. The level is one
    number in TensorFlow's library. The end of the session resets it.
    """
    try:
        ctypes.c_int.in_dll(_library(), _LEVEL).value = _VERBOSE
    except (OSError, ValueError):
        return False
    return True


def _leave_out_thread_pools() -> None:
    """Make the open session record nothing of what thread pools queue and run, if that is possible.

    These are most of a session's events, three for each piece of work, and nothing reads them. The end of the session
    turns them off in the same way.
    """
    with suppress(OSError, AttributeError):
        _library()[_NO_THREAD_POOLS]()


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(tf.sysconfig.get_lib()) / _LIBRARY))


def _read(folder: Path, offset_ns: int, of_memory_alone: bool) -> Trace:
    files = list(folder.glob("plugins/profile/*/*.xplane.pb"))
    with suppress(FileNotFoundError):
        data = b"".join(file.read_bytes() for file in files)
        if data:
            return xplane.read(data, offset_ns, of_memory_alone=of_memory_alone)
    raise UnavailableError("TensorFlow's profiler left no trace: it writes none over 2 GB")
