"""A session of TensorFlow's profiler, and what it told: the seam between sessions and what is made of them.

    session = Session()      # nothing yet
    session.start()          # raises UnavailableError where another profiler is running
    session.mark("name")     # a MarkEvent, on this thread, now
    trace = session.stop()   # everything, on one clock

All times are `time.monotonic_ns()` of this process; the events of one trace, marks among them, are on one clock, and
are put in order by it. `thread` is TensorFlow's own number of a thread, the same in all events of one trace.
"""

import ctypes
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import tensorflow as tf
from tensorflow.python.profiler.internal import _pywrap_traceme

from tbdprof.errors import UnavailableError
from tbdprof.facts.records import AllocationKind, KernelKind
from tbdprof.hooks.clock import wall_offset_ns

MARK = "tbdprof "  # what the names of marks begin with in the trace
_SHARED_MEMORY = Path("/dev/shm")
_LIBRARY = "libtensorflow_framework.so.2"
_LEVEL = "_ZN3tsl8profiler8internal13g_trace_levelE"  # tsl::profiler::internal::g_trace_level, a std::atomic<int>
_VERBOSE = 3  # tsl::profiler::TraceMeLevel::kVerbose


@dataclass(frozen=True, slots=True)
class OpEvent:
    """One execution of a node on a thread of TensorFlow's."""

    thread: int
    node: str  # name after Grappler ("gradient_tape/resnet50/…/Conv2DBackpropFilter"); in eager mode the type
    op: str  # type of the node that ran ("_MklNativeConv2D", "Mul"); a compiled function's own name
    start_ns: int
    end_ns: int
    step: int = 0  # number of the run of a function it is part of (`FunctionEvent.step`), 0: none, as in eager mode
    is_eager: bool = False


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """One allocation or free, in the order of the allocator's lock."""

    time_ns: int
    thread: int
    kind: AllocationKind
    allocator: str  # "bfc_cpu_allocator_for_gpu", "mklcpu", "GPU_0_bfc"
    address: int
    requested_bytes: int
    allocated_bytes: int
    total_bytes: int  # of the allocator, after this event
    peak_bytes: int
    node: str  # "" where none is told; the name after Grappler, in eager mode the type
    region: str  # "output", "temp", ""
    dtype: int  # TensorFlow's number of the data type, 0: not told
    shape: str  # "[2,3]", "" where it is not told
    step: int


@dataclass(frozen=True, slots=True)
class MarkEvent:
    """A mark of ours."""

    name: str
    thread: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class FunctionEvent:
    """A call of a `tf.function` ("__inference_step_305"), on the thread that called it."""

    name: str
    thread: int
    start_ns: int
    end_ns: int
    step: int  # the number its operators carry, 0 where it is compiled: it then has HloEvents
    is_compiled: bool = False


@dataclass(frozen=True, slots=True)
class HloEvent:
    """One execution of an instruction that XLA made."""

    thread: int
    name: str  # "convolution.1", "multiply_add_fusion"
    module: str  # as the HloProto's hlo_module.name
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """A kernel, copy or set that a GPU executed; -1 and "": not told."""

    kind: KernelKind
    name: str
    device: str  # "cuda:0"
    stream: int
    start_ns: int
    end_ns: int
    correlation: int  # the number of the call that asked for it
    node: str = ""  # that asked for it, as in `OpEvent.node`
    hlo_op: str = ""  # as `HloEvent.name`
    hlo_module: str = ""
    graph: int = -1  # the CUDA graph it is a node of
    grid: str = ""  # JSON list of three
    block: str = ""
    registers: int = -1
    shared_bytes: int = -1
    moved_bytes: int = -1


@dataclass(frozen=True, slots=True)
class CallEvent:
    """A call of the CUDA driver."""

    name: str  # of the call, or of the kernel it launched
    thread: int
    start_ns: int
    end_ns: int
    correlation: int


@dataclass(slots=True)
class Trace:
    """What a session told, each list in the order of time; an operator comes before those inside it."""

    ops: list[OpEvent] = field(default_factory=list)
    memory: list[MemoryEvent] = field(default_factory=list)
    marks: list[MarkEvent] = field(default_factory=list)
    functions: list[FunctionEvent] = field(default_factory=list)
    hlo_ops: list[HloEvent] = field(default_factory=list)
    hlo_protos: dict[str, bytes] = field(default_factory=dict)  # serialized xla.HloProto by name of the module
    activities: list[DeviceEvent] = field(default_factory=list)
    calls: dict[int, CallEvent] = field(default_factory=dict)  # by correlation
    dropped: int = 0  # events the profiler says it lost
    errors: list[str] = field(default_factory=list)  # its own words about what went wrong
    leaves_out: bool = False  # operators that TensorFlow has come to think cheap are not told


class Session:
    """One session; sessions follow one another in a process, and no two are open at once."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._offset_ns = 0
        self._leaves_out = False

    def start(self) -> None:
        """Begin; raises UnavailableError where another session of this process is open."""
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
        self._leaves_out = not _tell_of_cheap_operators()
        self._folder, self._offset_ns = folder, wall_offset_ns()

    def mark(self, name: str) -> int:
        """Put a mark into the trace, with everything this thread did before; return the time."""
        _pywrap_traceme.TraceMe(MARK + name).Stop()
        return time.monotonic_ns()

    def stop(self, *, of_memory_alone: bool = False) -> Trace:
        """End, and return what was told, all or of memory; raises UnavailableError where the trace cannot be read."""
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


def _tell_of_cheap_operators() -> bool:
    """Have the open session trace every operator; return whether that could be had.

    The executor lowers its estimate of an operator's cost with each run and traces what it thinks cheap at a higher
    level than sessions have, which take no other (TensorFlow 2.21 ignores `ProfilerOptions`): after some ninety runs
    most operators of a small net would be gone. The level is one number in TensorFlow's library; the session's end sets
    it back.
    """
    try:
        library = ctypes.CDLL(str(Path(tf.sysconfig.get_lib()) / _LIBRARY))
        ctypes.c_int.in_dll(library, _LEVEL).value = _VERBOSE
    except (OSError, ValueError):
        return False
    return True


def _read(folder: Path, offset_ns: int, of_memory_alone: bool) -> Trace:
    from tbdprof.hooks.on_tensorflow.xplane import read

    files = list(folder.glob("plugins/profile/*/*.xplane.pb"))
    with suppress(FileNotFoundError):
        told = b"".join(file.read_bytes() for file in files)
        if told:
            return read(told, offset_ns, of_memory_alone=of_memory_alone)
    raise UnavailableError("TensorFlow's profiler left no trace: it writes none over 2 GB")
