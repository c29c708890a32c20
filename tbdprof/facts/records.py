"""What a recording is made of besides the rows of its tables: their enumerations, texts, and the facts of the run.

Hooks and collectors report facts and nothing else; every conclusion is drawn in `tbdprof.analysis`. The rows of the
tables are in `tbdprof.facts.rows`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class SpanKind(IntEnum):
    """What a span of time stands for; spans nest within a thread."""

    PHASE = 0
    LAYER = 1
    OPERATOR = 2


class Phase(IntEnum):
    """The part of a training step in which something ran."""

    OUTSIDE = 0  # none of the others: loading data, logging, the user's own code
    FORWARD = 1
    BACKWARD = 2
    RECOMPUTE = 3  # forward operators run again during backward (activation checkpointing)
    UPDATE = 4  # the optimizer's step
    DATA = 5  # the framework's own data loader, where it says so


class Operation(IntEnum):
    """The kinds of operator into which every hook translates those of its framework."""

    OTHER = 0
    CAST = 1  # a change of data type; `operand` is the storage that was read
    ACCUMULATE = 2  # adds a gradient to the one that is there
    COMPILED = 3  # a region that a compiler made, whose inside is not seen
    PLANNED = 4  # a pool that a memory planner laid out for activations and their gradients
    CONVOLUTION = 5
    MATMUL = 6  # matrix multiplications, dense layers among them
    ATTENTION = 7  # in one operator; attention made of matmuls and a softmax counts as these
    RECURRENT = 8  # LSTM, GRU and plain cells in one operator
    EMBEDDING = 9
    NORMALIZATION = 10
    ACTIVATION = 11
    POOLING = 12
    SOFTMAX = 13
    LOSS = 14
    ELEMENTWISE = 15  # arithmetic on each element, dropout among it
    REDUCTION = 16
    OPTIMIZER = 17
    COPY = 18  # copies, fills and changes of layout
    COMMUNICATION = 19  # between processes or devices
    BOOKKEEPING = 20  # memory requested, freed or viewed in another shape: no arithmetic, and nothing moved


class AllocationKind(IntEnum):
    """What happened to a block of memory."""

    FREED = 0
    ALLOCATED = 1
    EXISTING = 2  # was there when the window began


class KernelKind(IntEnum):
    """What a device was busy with."""

    KERNEL = 0
    COPY = 1
    SET = 2  # memory filled with one value


class Role(IntEnum):
    """What a block of memory is for; `tbdprof.results.memory.CATEGORIES` groups roles into the TBD paper's categories.

    The paper: Zhu et al., "Benchmarking and Analyzing Deep Neural Network Training", IISWC 2018, arXiv:1803.06905,
    section III-D-3. `docs/memory.md` says what each role is.
    """

    WEIGHT = 0
    BUFFER = 1
    CAST = 2
    GRADIENT = 3
    FEATURE_MAP = 4
    GRADIENT_MAP = 5
    RECOMPUTED = 6
    INPUT = 7
    PLANNED = 8
    WORKSPACE = 9
    TEMPORARY = 10
    COMPILED = 11
    OPTIMIZER_STATE = 12
    DYNAMIC = 13
    UNKNOWN = 14
    GATHERED = 15
    COMMUNICATION = 16


NOWHERE = -2  # index of no text


class Strings:
    """Interned text: each text once, known by its index."""

    def __init__(self, texts: tuple[str, ...] = ()) -> None:
        self._texts = list(texts)
        self._index = {text: index for index, text in enumerate(self._texts)}

    def add(self, text: str) -> int:
        """Return the index of a text, interning it when it is new; half of a surrogate pair is kept as its escape.

        No file can hold such a half, because it has no place in UTF-8.
        """
        index = self._index.setdefault(text, len(self._texts))
        if index == len(self._texts):
            self._texts.append(text if text.isascii() else text.encode("utf-8", "backslashreplace").decode())
        return index

    def find(self, text: str) -> int:
        """Return the index of a text; `NOWHERE`, which no record has, if it is not interned."""
        return self._index.get(text, NOWHERE)

    def __getitem__(self, index: int) -> str:
        """Return the text of an index; -1 is the empty text."""
        return self._texts[index] if index >= 0 else ""

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self._texts)

    def since(self, count: int) -> list[str]:
        """Return the texts added after the first `count`."""
        return self._texts[count:]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One weight or buffer of the model; a storage that several names share is listed once.

    `held_bytes` is what all its copies hold together, with the indices of sparse ones. None: one dense array.
    """

    name: str
    shape: tuple[int, ...]
    item_bytes: int
    trainable: bool
    is_buffer: bool = False
    held_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer and the trainable parameters it updates, by name.

    `kind` is sgd, adam, adamw or rmsprop, or the framework's own name of another optimizer. `settings` has what decides
    the size of its state: momentum, amsgrad, centered, and `scalar_bytes`, a step counter that some frameworks keep for
    each parameter.
    """

    kind: str
    parameters: tuple[str, ...]
    settings: Mapping[str, float] = field(default_factory=dict)


NOTABLE_LOAD = 0.1  # share of the cores; if other processes take less, figures are taken for undisturbed


@dataclass(frozen=True, slots=True)
class Peaks:
    """The most that a device can do, and where each figure is from."""

    flops_per_s: Mapping[str, float]  # by precision: fp32, tf32, fp64, bf16, fp16, fp8
    bytes_per_s: float | None  # of its memory
    sources: Mapping[str, str]  # by precision, "vector " and precision, and "memory"
    clock_hz: float | None = None  # the clock the figures hold for, None: they were measured
    vector_flops_per_s: Mapping[str, float] | None = None  # without tensor cores, None: alike
    others: float | None = None  # share of the cores that others took while it was measured, None: not known

    @property
    def is_disturbed(self) -> bool:
        """Return whether other processes took a notable share of the cores: the true peaks may be higher."""
        return self.others is not None and self.others > NOTABLE_LOAD

    def of(self, precision: str, *, product: bool) -> float | None:
        """Return the FLOP/s of matmuls and convolutions (`product`), or of element-wise operators (no tensor cores)."""
        rates = self.flops_per_s if product or self.vector_flops_per_s is None else self.vector_flops_per_s
        return rates.get(precision)


@dataclass(frozen=True, slots=True)
class Run:
    """What is true of the whole run. The recorder replaces it when more becomes known."""

    model: str
    framework: str
    framework_version: str = ""
    device: str = "cpu"
    devices: list[str] = field(default_factory=list)  # whose memory is the run's, `device` among them; none: it alone
    device_name: str = ""
    threads: int = 0
    cores: float = 0.0  # cores the process may use: affinity and quota
    affinity_cores: float = 0.0  # cores it may run on, without the quota
    batch_size: int | None = None  # samples a step
    batch_size_from: str = ""  # where the framework's hook has it from; empty: from the user, or not known
    samples_seen_from: str = ""  # what the samples are that models were seen to get
    samples_unknown: str = ""  # why what they were seen to get does not tell the samples of a step
    precision: str | None = None
    precision_flags: Mapping[str, str] = field(default_factory=dict)
    whole_parameters: int | None = None  # trained values in all processes; None: this one has all of them
    runs_ahead: bool = False  # the framework goes on while what it was asked for is still to be done, on a CPU too
    seed: int | None = None
    options: Mapping[str, str | int] = field(default_factory=dict)
    unit: str = "samples"
    sample_unit: str = "samples"  # the unit that is one sample of the data set
    script: str | None = None  # name without its path
    rank: int | None = None  # its number among processes that train together; None: it trains alone, or nobody said
    world_size: int | None = None  # how many these are, on all machines
    started: str = ""  # ISO 8601, UTC
    tbdprof_version: str = ""
    parameters: tuple[Parameter, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    peaks: Peaks | None = None  # None: `missing` says why, or nobody asked
    watched_since: str = ""  # "before the first allocation", or why not since then
    independent_total: str | None = None  # None: kept by the framework since before the model; else why there is none
    planned: tuple[tuple[str, int | None], ...] = ()  # the windows that were meant, in order, and their steps if known
    settled: bool | None = None  # None: nothing was judged
    settled_by: str = ""
    whole_run_peak_bytes: int | None = None
    device_bytes: int | None = None  # memory of the device, as its driver reports it
    context_bytes: int | None = None  # what a process that only makes a context takes of it
    libraries_bytes: int | None = None  # what it takes besides once the framework computed something small in it
    used_before_bytes: int | None = None  # what the driver and other processes took of it before the run
    others_before_bytes: int | None = None  # what other processes took of that, None: the driver does not report it
    asked_for: str = ""  # what the allocator said where the run ended out of memory
    batch_peaks: Mapping[str, int] = field(default_factory=dict)  # by batch size: what processes took that tried it
    batch_room_bytes: int | None = None  # what was there for them to take
    fitting_batch: int | None = None  # the largest batch that was seen to fit after the run ended out of memory
    complete: bool = False
    ended_by: str = "it never started"  # why it is not complete, empty where it is
