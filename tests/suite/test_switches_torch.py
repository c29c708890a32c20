"""Each switch in PyTorch does what it says: judged by torch's own counts of FLOPs, layouts and settings."""

import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from tbdprof import suite
from tbdprof.errors import UnavailableError
from tbdprof.suite import resnet50, transformer, wgan
from tbdprof.suite.on_torch import switch
from tbdprof.suite.resnet50 import on_torch as resnet50_on_torch
from tbdprof.suite.transformer import on_torch as transformer_on_torch
from tbdprof.suite.wgan import on_torch as wgan_on_torch
from tbdprof.suite.workload import Config, Spec

SIZES: dict[str, tuple[Spec, Any, dict[str, Any]]] = {
    "resnet50": (resnet50.SPEC, resnet50_on_torch, {"batch_size": 2, "options": {"image_size": 33}}),
    "wgan": (wgan.SPEC, wgan_on_torch, {"batch_size": 2, "options": {"width": 8, "critic_steps": 1}}),
    "transformer": (
        transformer.SPEC,
        transformer_on_torch,
        {"batch_size": 2, "options": {"layers": 2, "vocabulary": 200, "width": 64, "dropout": "off"}},
    ),
}


def config(model: str, **chosen: str) -> Config:
    spec, _, size = SIZES[model]
    return suite.configure(
        spec, framework="torch", precision="fp64", seed=1, **{**size, "options": {**size["options"], **chosen}}
    )


def built(model: str, **chosen: str) -> Any:
    spec, module, _ = SIZES[model]
    return module.build(spec, config(model, **chosen))


class Counted(TorchDispatchMode):
    """Counts the operators that run in its block, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[str(func.overloadpacket)] += 1
        return func(*args, **(kwargs or {}))


class Trained:
    """Two training steps of a model: what ran and what autograd saved in the first one, and the weights after both."""

    def __init__(self, workload: Any) -> None:
        self.workload = workload
        saved: dict[int, Tensor] = {}

        def pack(tensor: Tensor) -> Tensor:
            saved[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        with Counted() as counted, saved_tensors_hooks(pack, lambda tensor: tensor):
            workload.step()
        self.calls, self.saved_bytes = counted.calls, sum(each.untyped_storage().nbytes() for each in saved.values())
        workload.step()
        models = workload.model if isinstance(workload.model, list) else [workload.model]
        self.weights = [weight.detach().clone() for model in models for weight in model.parameters()]


@cache
def trained(model: str, **chosen: str) -> Trained:
    return Trained(built(model, **chosen))


def distance(ones: list[Tensor], others: list[Tensor]) -> float:
    """Return how far weights are from others, relative to how large they are."""
    apart = sum(float((one - other).square().sum()) for one, other in zip(ones, others, strict=True))
    return (apart / sum(float(one.square().sum()) for one in ones)) ** 0.5


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("model", "name", "bound"),
    [
        ("resnet50", "channels_last", 1e-9),
        ("resnet50", "fused_optimizer", 1e-9),
        ("resnet50", "checkpointing", 0.0),
        ("wgan", "channels_last", 1e-9),
        ("wgan", "fused_optimizer", 1e-9),
        ("wgan", "checkpointing", 0.0),
        ("transformer", "fused_optimizer", 1e-9),
        ("transformer", "checkpointing", 0.0),
    ],
)
def test_the_training_stays_the_same_but_for_rounding(model: str, name: str, bound: float) -> None:
    plain, switched = trained(model), trained(model, **{name: "on"})

    assert distance(plain.weights, switched.weights) <= bound


def test_weights_that_were_trained_otherwise_are_told_apart() -> None:
    plain = trained("resnet50")
    other = built("resnet50")
    other.optimizer.param_groups[0]["momentum"] = 0.8

    assert distance(plain.weights, Trained(other).weights) > 1e-4


@pytest.mark.parametrize("model", ["resnet50", "wgan"])
def test_channels_last_is_the_layout_of_the_weights(model: str) -> None:
    def last(workload: Any) -> set[bool]:
        models = workload.model if isinstance(workload.model, list) else [workload.model]
        weights = [each for model in models for each in model.parameters() if each.dim() == 4 and min(each.shape) > 1]
        weights = [each for each in weights if max(each.shape[2:]) > 1]
        return {each.is_contiguous(memory_format=torch.channels_last) for each in weights}

    assert last(trained(model, channels_last="on").workload) == {True}
    assert last(trained(model).workload) == {False}


@pytest.mark.parametrize("model", [*SIZES])
def test_a_fused_optimizer_is_torchs_own(model: str) -> None:
    def fused(workload: Any) -> set[Any]:
        every = workload.optimizer if isinstance(workload.optimizer, list) else [workload.optimizer]
        return {each.defaults["fused"] for each in every}

    assert fused(trained(model, fused_optimizer="on").workload) == {True}
    assert fused(trained(model).workload) == {None}


@pytest.mark.parametrize(
    ("model", "operator", "once", "again"),
    [
        ("resnet50", "aten.convolution", 53, 52),  # the first one is in no block
        ("transformer", "aten.native_layer_norm", 2 * 2 + 2 * 3, 2 * 2 + 2 * 3),
    ],
)
def test_checkpointing_keeps_less_and_computes_the_blocks_again(
    model: str, operator: str, once: int, again: int
) -> None:
    plain, switched = trained(model), trained(model, checkpointing="on")

    assert (plain.calls[operator], switched.calls[operator]) == (once, once + again)
    assert switched.saved_bytes < 0.75 * plain.saved_bytes


def test_compiling_needs_a_compiler_and_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UnavailableError, match=r"torch.compile runs g\+\+: install g\+\+, or set CXX"):
        built("resnet50", compile="on")
    monkeypatch.setenv("CXX", "nowhere")
    with pytest.raises(UnavailableError, match=r"torch.compile runs nowhere \(CXX\), which is not there"):
        built("resnet50", compile="on")


def test_a_compiled_model_runs_what_the_compiler_made(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        compiled.append(graph)
        return graph.forward

    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **more: real(function, **more, backend=backend))
    monkeypatch.setenv("CXX", sys.executable)  # a program that is there; nothing runs it here

    class Doubled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

    model = Doubled()
    switch(model, config("resnet50", compile="on"))
    model(torch.ones(1, 2))

    assert len(compiled) == 1
