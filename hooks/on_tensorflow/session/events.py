"""What a session of TensorFlow's profiler told: the seam between sessions and what is made of them.

All times are `time.monotonic_ns()` of this process; the events of one trace, marks among them, are on one clock, and
are put in order by it. `thread` is TensorFlow's own number of a thread, the same in all events of one trace.
"""

from dataclasses import dataclass, field

from tbdprof.facts.records import AllocationKind, KernelKind

MARK = "tbdprof "  # what the names of marks begin with in the trace
READING, HELD, READ, STEP = "reading", "held ", "read ", "step"  # the names of markers


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
