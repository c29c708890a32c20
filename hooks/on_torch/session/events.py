"""What torch's profiler and the markers reported about a window, without torch's own types."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from tbdprof.facts.records import Operation, Role

ENGINE_NODE = "autograd::engine::evaluate_function"
ACCUMULATE_GRAD = "torch::autograd::AccumulateGrad"
UPDATE = "Optimizer.step#"
_GRADIENT_NODE = f"{ENGINE_NODE}: {ACCUMULATE_GRAD}"
_REDUCING = ("FSDP::post_backward_reduce", "FullyShardedDataParallel._post_backward_hook")
_LOADING = "enumerate(DataLoader)#"
COMMUNICATION = ("c10d::", "_c10d_functional::", "gloo:", "nccl:", "mpi:", "ucc:", "record_param_comms")
_GATHERING = (
    "FSDP::all_gather_copy_out",
    "FullyShardedDataParallel._pre_forward",
    "FullyShardedDataParallel._pre_backward_hook",
)
_FUSED = "## Call CompiledFxGraph"
_COMPILED = ("CompiledFunction", _FUSED)
_FRAME = "Torch-Compiled Region"


class Scope(IntEnum):
    """Who opened a region: an operator, a node of the backward graph, or Python code."""

    FUNCTION = 0
    BACKWARD = 1
    USER = 2


class Point(IntEnum):
    """What a marker stands for."""

    BEGIN = 0
    STEP = 1
    FORWARD = 2
    FORWARD_END = 3
    LAYER = 4
    LAYER_END = 5
    UPDATE_BEGIN = 6
    UPDATE_END = 7
    GONE = 8  # a storage older than the accounting was freed
    READING = 9  # owners are read between this marker and the thread's next marker with owners
    EXISTING = 10  # what existed when the window began has been read
    BY_HAND = 11  # a backward pass ended, and there is no optimizer: an update of the weights by hand may follow


@dataclass(frozen=True, slots=True)
class Owned:
    """A storage and the role in which it was found; `bytes` is the size of the storage."""

    device: str
    address: int
    bytes: int
    role: Role
    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Existing:
    """A block that existed when the window began."""

    device: str
    address: int
    bytes: int
    shape: tuple[int, ...] | None = None  # None if no tensor was seen in it
    requested_bytes: int = -1  # -1 if not reported, where `bytes` is the rounded size


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight's layer and size."""

    layer: str
    elements: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A point in Python code, the owners read there, and blocks found there that perhaps nothing reported."""

    point: Point
    name: str = ""
    owned: Sequence[Owned] = ()
    found: Sequence[Existing] = ()
    ends_forward: bool = False  # FORWARD_END only: the forward phase ends here, because gradients are off
    device: str = ""  # GONE only
    address: int = 0  # GONE only
    touches: frozenset[int] = frozenset()  # BY_HAND only: the addresses of weights and gradients


@dataclass(frozen=True, slots=True)
class SeenTensor:
    """A tensor that was an operator's input or that Python holds; `bytes` is elements times item size."""

    device: str
    address: int
    bytes: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fused:
    """A kernel that a compiler made of several operators; None: its code does not say."""

    kernel: str
    operators: tuple[str, ...] | None
    nodes: tuple[str, ...] | None  # of the graph that was compiled


@dataclass(eq=False, slots=True)
class BackwardRun:
    """Nodes of the backward graph that ran one after another."""

    first: "Region"
    last: "Region"
    ends_forward: bool = False  # the forward phase before it ends where it begins
    makes_graph: bool = True  # torch keeps its graph: numbered operators in it are derivatives, not recomputed


@dataclass(eq=False, slots=True)
class Region:
    """An interval in a thread: an operator, a backward node, or a range of Python code."""

    name: str
    scope: Scope
    thread: int
    start_ns: int
    end_ns: int
    number: int  # torch's sequence number, -1 if none
    parent: "Region | None" = None
    correlation: int = 0  # its number among the profiler's events, which CUDA calls refer to; 0 if none
    shapes: Sequence[object] = ()
    tensors: Sequence[SeenTensor] = ()  # in memory windows
    operation: Operation = Operation.OTHER  # in kernels windows
    work: str | None = None  # text of a `tbdprof.facts.work.Work`, in kernels windows
    run: BackwardRun | None = None
    holds_engine: bool = False
    begins_forward: bool = False  # the backward pass goes through it, and no model is called around it
    begins_update: bool = False  # an update that is no optimizer's step begins with it
    ends_update: bool = False  # such an update ends with it
    holds_numbered: bool = False  # backward nodes only
    addresses: Sequence[int] = ()  # of its tensors' storages; in compiled regions and frames, and in loops by hand
    layer: str | None = None  # in compiled regions and frames only: the layer that it belongs to
    fused: Sequence[Fused] = ()  # compiled regions only: the kernels that the compiler made of several operators

    @property
    def innermost_run(self) -> BackwardRun | None:
        """The innermost backward run that contains it."""
        return next((each.run for each in (self, *surroundings(self)) if each.run is not None), None)

    @property
    def runs_again(self) -> bool:
        """Whether it recomputes parts of the forward pass; asked of a backward node or an operator in one."""
        run = self.innermost_run
        return (self.holds_numbered or self.is_numbered) and (run is None or not run.makes_graph)

    @property
    def is_numbered(self) -> bool:
        """Whether it is an operator that may have a backward node."""
        return self.scope is Scope.FUNCTION and self.number >= 0 and not self.is_engine_node

    @property
    def is_engine_node(self) -> bool:
        """Whether the autograd engine opened it around one node."""
        return self.name.startswith(ENGINE_NODE)

    @property
    def is_update(self) -> bool:
        """Whether it is an optimizer's step."""
        return self.scope is Scope.USER and self.name.startswith(UPDATE)

    @property
    def is_loading(self) -> bool:
        """Whether it is a data loader fetching the next batch."""
        return self.scope is Scope.USER and self.name.startswith(_LOADING)

    @property
    def is_compiled(self) -> bool:
        """Whether a compiler generated what runs inside."""
        return self.name.startswith(_COMPILED)

    @property
    def is_frame(self) -> bool:
        """Whether it is a call of a function that torch.compile translated: graphs, and Python code between them."""
        return self.name.startswith(_FRAME)

    @property
    def is_translated(self) -> bool:
        """Whether it is compiled or a frame: no module's call is seen directly in it."""
        return self.is_compiled or self.is_frame

    @property
    def is_fused(self) -> bool:
        """Whether it is a graph in which a compiler makes one kernel of several operators."""
        return self.name.startswith(_FUSED)

    @property
    def shown_name(self) -> str:
        """The name that reports show: a compiled graph is called by the kernels in it."""
        return ", ".join(each.kernel for each in self.fused) or self.name

    @property
    def is_communication(self) -> bool:
        """Whether it sends to other processes or receives from them, or waits for that."""
        return self.name.startswith(COMMUNICATION)

    @property
    def takes_gradients(self) -> bool:
        """Whether gradients of weights end in it: they are added to those that are there, or sent to be summed."""
        ranges = self.scope is Scope.USER and self.name.startswith(_REDUCING)
        return ranges or self.name in (ACCUMULATE_GRAD, _GRADIENT_NODE)

    @property
    def gathers(self) -> bool:
        """Whether it makes whole weights of the shares that all processes sent."""
        return self.scope is Scope.USER and self.name.startswith(_GATHERING)

    @property
    def is_range(self) -> bool:
        """Whether Python code opened it; such a region may be cut where a phase ends."""
        opened = self.scope is Scope.USER and not self.is_communication and not self.is_compiled
        return opened or self.is_frame


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """An allocation (bytes > 0) or a free (bytes < 0)."""

    device: str
    thread: int
    address: int
    bytes: int
    total_bytes: int  # torch's running total for the device
    was_tensor: bool


@dataclass(frozen=True, slots=True)
class Marked:
    """A marker found in the profiler's events."""

    thread: int
    mark: Mark


@dataclass(frozen=True, slots=True)
class Enter:
    """A region began."""

    region: Region


@dataclass(frozen=True, slots=True)
class Leave:
    """A region ended."""

    region: Region


Event = Enter | Leave | MemoryEvent | Marked


@dataclass(slots=True)
class Trace:
    """A window's events in order of time, each with its `time.monotonic_ns`."""

    events: list[tuple[int, Event]] = field(default_factory=list)
    begun: bool = False  # the window's first marker is among the events
    cpu_bytes_at_begin: int = 0  # torch's running total for the CPU


def surroundings(region: Region) -> Iterator[Region]:
    """Yield the regions around a region, the innermost first."""
    around = region.parent
    while around is not None:
        yield around
        around = around.parent
