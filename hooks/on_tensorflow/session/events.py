"""The events of a session of TensorFlow's profiler: the interface between sessions and their analysis.

All times are `time.monotonic_ns()` of this process. The events of one trace, including markers, use one clock, and
their order is that of its times. `thread` is TensorFlow's own number of a thread, the same in all events of one trace.
"""

from dataclasses import dataclass, field

from tbdprof.facts.records import AllocationKind, KernelKind

# Prefixes of the names of traced functions; the second is that of one whose gradient is taken in eager mode.
FUNCTIONS = ("__inference_", "__forward_")
MARK = "tbdprof "  # prefix of the markers' names in the trace
READING, HELD, READ, STEP = "reading", "held ", "read ", "step"  # the names of markers
READ_TOGETHER = (
    "_ReadVariablesOp"  # TensorFlow's operator that reads many variables; in eager mode only tbdprof runs it
)
ERRORS = "TensorFlow's profiler reported {} errors of its own"


@dataclass(frozen=True, slots=True)
class OpEvent:
    """One execution of a node on one of TensorFlow's threads."""

    thread: int
    node: str  # name after Grappler ("gradient_tape/resnet50/…/Conv2DBackpropFilter"); in eager mode the type
    op: str  # type of the node that ran ("_MklNativeConv2D", "Mul"); a compiled function's own name
    start_ns: int
    end_ns: int
    step: int = 0  # number of the function run around it (`FunctionEvent.step`); 0 if none, as in eager mode
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
    node: str  # "" if not reported; the name after Grappler, in eager mode the type
    region: str  # "output", "temp", ""
    dtype: int  # TensorFlow's number of the data type, 0 if not reported
    shape: str  # "[2,3]", "" if not reported
    step: int


@dataclass(frozen=True, slots=True)
class MarkEvent:
    """A marker set by tbdprof."""

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
    step: int  # the number that its operators carry; 0 if it is compiled, as it then has HloEvents
    is_compiled: bool = False


@dataclass(frozen=True, slots=True)
class HloEvent:
    """One execution of an instruction that XLA compiled."""

    thread: int
    name: str  # "convolution.1", "multiply_add_fusion"
    module: str  # the HloProto's hlo_module.name
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """A kernel, copy or memset that a GPU executed; -1 and "" mean not reported."""

    kind: KernelKind
    name: str
    device: str  # "cuda:0"
    stream: int
    start_ns: int
    end_ns: int
    correlation: int  # number of the call that launched it
    node: str = ""  # the node that launched it, as in `OpEvent.node`
    hlo_op: str = ""  # as in `HloEvent.name`
    hlo_module: str = ""
    graph: int = -1  # the CUDA graph that it is a node of
    grid: str = ""  # JSON list of three
    block: str = ""
    registers: int = -1
    shared_bytes: int = -1
    moved_bytes: int = -1


@dataclass(frozen=True, slots=True)
class CallEvent:
    """A call of the CUDA driver."""

    name: str  # name of the call, or of the kernel that it launched
    thread: int
    start_ns: int
    end_ns: int
    correlation: int


@dataclass(slots=True)
class Trace:
    """What a session recorded, each list in order of time; an operator comes before those inside it."""

    ops: list[OpEvent] = field(default_factory=list)
    memory: list[MemoryEvent] = field(default_factory=list)
    marks: list[MarkEvent] = field(default_factory=list)
    functions: list[FunctionEvent] = field(default_factory=list)
    hlo_ops: list[HloEvent] = field(default_factory=list)
    hlo_protos: dict[str, bytes] = field(default_factory=dict)  # serialized xla.HloProto by module name
    activities: list[DeviceEvent] = field(default_factory=list)
    calls: dict[int, CallEvent] = field(default_factory=dict)  # by correlation
    dropped: int = 0  # records of GPUs that the profiler says it dropped
    errors: list[str] = field(default_factory=list)  # the profiler's own messages about what went wrong
    leaves_out: bool = False  # operators that TensorFlow now considers cheap are not reported
