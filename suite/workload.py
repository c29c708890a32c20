"""What a model of the suite is: facts (`Spec`), what may vary (`Config`), and one training step (`Workload`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tbdprof.facts.consumed import Consumed

Options = Mapping[str, str | int]


PERIOD = 4  # synthetic batches that are repeated, where batches differ in length
SWITCH = ("off", "on")  # the choices of an option that may be typed without a value, which turns it on


@dataclass(frozen=True, slots=True)
class Option:
    """A choice that belongs to one model, given as `--name VALUE` on the command line; a `SWITCH` may be `--name`."""

    name: str
    default: str | int
    help: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spec:
    """The facts of a model, the same in every framework, each with its source in the model's folder."""

    name: str
    title: str
    task: str
    dataset: str
    unit: str  # what throughput counts, in the plural: images, tokens
    sample_unit: str  # what one sample of the data set is, in the plural; often the same
    layers: str  # how many, as seed 003's table II counts them
    dominant_layer: str
    parameters: int  # trainable, each storage once
    default_batch: Mapping[str, int]  # by device type: cpu, cuda
    optimizer: str
    options: tuple[Option, ...] = ()
    # For refusing what cannot fit before anything is allocated, in fp32: the weights' share, and each sample's.
    fixed_bytes: int = 0
    sample_bytes: Callable[[Options], int] = lambda _: 0
    # FLOPs of a training step for each sample, of which a configuration's synthetic batches have padding: the sum over
    # the layers, with what a framework makes besides or does without (its name is given). None: not derived.
    sample_flops: Callable[["Config", str], float | None] = lambda _config, _framework: None
    period: int = 1  # steps after which the synthetic batches repeat; windows hold whole periods
    # Steps that a memory or kernels window needs at least after the first, which settles, to see all that happens.
    watched_steps: Callable[[Options], int] = lambda _: 1


@dataclass(frozen=True, slots=True)
class Config:
    """What may vary from run to run."""

    batch_size: int
    device: str = "cpu"  # cpu, cuda:N
    precision: str = "fp32"  # fp32, tf32 (products, on a GPU), fp64, bf16 (autocast)
    seed: int = 0
    options: Options = field(default_factory=dict)
    data: Path | None = None  # folder of the real data set; None: one synthetic batch, again and again


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
        """Return the arrays kept from step to step that hold mini-batches and labels, or a list of them."""

    def step(self) -> float | Consumed:
        """Run one training step on the next batch; return the units of work it consumed."""


@runtime_checkable
class Concurrent(Workload, Protocol):
    """A workload whose steps are taken by threads of its own, which go on between two calls of `step`."""

    def pause(self) -> None:
        """Let each thread end the step it is in; return when none computes. The next `step` lets them go on."""

    def close(self) -> None:
        """End the threads."""


class Learner(Workload, Protocol):
    """A workload that can be asked whether it learns; batches are those of `suite.data.inputs`, answers numpy's."""

    def train(self, batch: Any) -> float:
        """Run one training step on a batch; return its loss."""

    def predict(self, inputs: Any) -> Any:
        """Return what the model says of inputs, without training on them."""
