"""What defines a model of the suite: its facts (`Spec`), its settings (`Config`), one training step (`Workload`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from tbdprof.facts.consumed import Consumed

Options = Mapping[str, str | int]


PERIOD = 4  # number of synthetic batches that are repeated, for models whose batches differ in length
SWITCH = ("off", "on")  # the choices of an option that may be typed without a value, which means "on"


@dataclass(frozen=True, slots=True)
class Option:
    """An option of one model: `--name VALUE` on the command line; a `SWITCH` may be given as `--name` alone."""

    name: str
    default: str | int
    help: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spec:
    """The facts of a model, the same in every framework; the model's folder names the source of each."""

    name: str
    title: str
    task: str
    dataset: str
    unit: str  # what throughput counts, in the plural: images, tokens
    sample_unit: str  # what one sample of the data set is, in the plural; often the same
    layers: str  # how many, counted as in table II of the TBD paper (arXiv:1803.06905)
    dominant_layer: str
    parameters: int  # trainable, each storage once
    default_batch: Mapping[str, int]  # by device type: cpu, cuda
    optimizer: str
    options: tuple[Option, ...] = ()
    # Bytes in fp32, fixed and for each sample: a run that cannot fit is refused before anything is allocated.
    fixed_bytes: int = 0
    sample_bytes: Callable[[Options], int] = lambda _: 0
    # FLOPs of a training step for each sample, with the padding of the configuration's synthetic batches: the sum over
    # the layers, adjusted for what the named framework computes in addition or leaves out. None if it is not derived.
    sample_flops: Callable[["Config", str], float | None] = lambda _config, _framework: None
    period: int = 1  # steps after which the synthetic batches repeat; windows hold whole periods
    # Steps that a memory or kernels window needs at least to see all that happens. The first step of a window is not
    # counted here, because it is discarded as warm-up.
    watched_steps: Callable[[Options], int] = lambda _: 1
    switches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by framework; see `suite.switches`


@dataclass(frozen=True, slots=True)
class Config:
    """The settings that may vary from run to run."""

    batch_size: int
    device: str = "cpu"  # cpu, cuda:N
    precision: str = "fp32"  # fp32, tf32 (matmuls and convolutions, on a GPU), fp64, bf16 (autocast)
    seed: int = 0
    options: Options = field(default_factory=dict)
    data: Path | None = None  # folder of the real data set; if None, synthetic batches are repeated


class Workload(Protocol):
    """A model with its optimizer and data, ready to be trained one step at a time."""

    @property
    def model(self) -> object:
        """Return the model, or a list of models."""

    @property
    def optimizer(self) -> object:
        """Return the optimizer, or a list of optimizers."""

    @property
    def inputs(self) -> object:
        """Return the arrays of mini-batches and labels that are kept from step to step, or a list of them."""

    def step(self) -> "float | Consumed":
        """Run one training step on the next batch; return the units of work it consumed."""


@runtime_checkable
class Concurrent(Workload, Protocol):
    """A workload with its own training threads, which continue to run between two calls of `step`."""

    def pause(self) -> None:
        """Let each thread finish its current step; return when no thread computes. The next `step` resumes them."""

    def close(self) -> None:
        """End the threads."""


class Learner(Workload, Protocol):
    """A workload whose learning can be checked; batches are those of `suite.data.inputs`, results are numpy arrays."""

    def train(self, batch: Any) -> float:
        """Run one training step on a batch; return its loss."""

    def predict(self, inputs: Any) -> Any:
        """Return the model's predictions for inputs, without training on them."""
