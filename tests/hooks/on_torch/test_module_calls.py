"""How modules' calls are seen: whatever is called, copied or saved, the user's loop and what it keeps stay its own."""

import copy
import gc
import io
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tbdprof.facts.records import Operation, Phase, SpanKind
from tbdprof.hooks.on_torch import hook
from tests.hooks.on_torch.test_kernels import Kernels, Step, recorded

WIDTH = 6
MATRIX_FLOPS = 2 * WIDTH**3  # of a batch as large as a layer is wide


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))


def batch() -> torch.Tensor:
    return torch.randn(WIDTH, WIDTH)


def kernels_of(model: nn.Module, step: Step, steps: int = 1) -> Kernels:
    """What is reported of steps in a window of kernels; the model is given, and no optimizer."""
    torch_hook = hook()
    torch_hook.attach()
    torch_hook.watch([model], [])
    step()
    try:
        return recorded(torch_hook, step, steps)
    finally:
        torch_hook.close()


def phases_of(kernels: Kernels, name: str) -> set[Phase]:
    return {Phase(row["phase"]) for row in kernels.operators(name)}


def layers_of(kernels: Kernels, phase: Phase) -> list[str | None]:
    return [kernels.layer(row) for row, _, _ in kernels.products() if row["phase"] == phase]


def test_a_model_is_copied_and_saved_within_a_window_without_a_hook_and_its_copy_is_not_it() -> None:
    model, copies = perceptron(), []

    def step() -> None:
        model(batch()).mean().backward()
        torch.save(model, io.BytesIO())
        copies.append(copy.deepcopy(model))
        copies[-1](batch())

    kernels = kernels_of(model, step)
    hooks = [len(each._forward_hooks) + len(each._forward_pre_hooks) for kept in copies for each in kept.modules()]
    assert set(hooks) == {0}
    layers = [kernels.strings[row["name"]] for row in kernels.spans if row["kind"] == SpanKind.LAYER]
    assert layers == ["", "0", "1", "2"]


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
@pytest.mark.parametrize("root", [True, False])
def test_a_script_is_called_as_one_module(root: bool) -> None:
    script = torch.jit.script(perceptron())
    model = script if root else nn.Sequential(script)
    kernels = kernels_of(model, lambda: model(batch()).mean().backward())
    assert set(layers_of(kernels, Phase.FORWARD)) == {"" if root else "0"}
    assert kernels.model_flops() == 5 * MATRIX_FLOPS


class Method(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron()

    def loss(self, given: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.net(given) @ self.net[0].weight
        return scores.mean()


def test_a_model_entered_by_a_method_has_a_forward_phase() -> None:
    model = Method()
    kernels = kernels_of(model, lambda: model.loss(batch()).backward())  # type: ignore[no-untyped-call]
    assert phases_of(kernels, "aten::addmm") == {Phase.FORWARD}
    assert layers_of(kernels, Phase.FORWARD) == ["net.0", "net.2", None]
    assert "forward net" in {kernels.strings[row["name"]] for row in kernels.spans if row["kind"] == SpanKind.PHASE}


def test_a_compilers_warning_of_hooks_is_not_shown_and_filters_are_put_back() -> None:
    model: Any = torch.compile(perceptron(), backend="eager")
    before = list(warnings.filters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Guards may run slower", RuntimeWarning)  # torch's own, on Python 3.13.0
        kernels = kernels_of(model, lambda: model(batch()).mean().backward())
    assert kernels.model_flops() == 5 * MATRIX_FLOPS
    assert list(warnings.filters) == before


@pytest.mark.parametrize("both", [True, False])
def test_other_threads_are_reported(both: bool) -> None:
    model = perceptron()

    def train() -> None:
        model(batch()).mean().backward()

    def step() -> None:
        run: Callable[..., Any] = train if both else model(batch()).mean().backward
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    kernels = kernels_of(model, step)
    assert kernels.model_flops() == 5 * MATRIX_FLOPS
    assert phases_of(kernels, "aten::tanh_backward") == {Phase.BACKWARD}


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the FLOPs of products of matrices."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            left, right = args[-2:]
            self.flops += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        return function(*args, **(kwargs or {}))


def penalized(model: nn.Module) -> None:
    given = batch().requires_grad_()
    scores = model(given)
    (slope,) = torch.autograd.grad(scores.sum(), given, create_graph=True)
    (scores.mean() + ((slope.norm(dim=1) - 1) ** 2).mean()).backward()


def adapted(model: nn.Module) -> None:
    weights = dict(model.named_parameters())
    slopes = torch.autograd.grad(model(batch()).mean(), list(weights.values()), create_graph=True)
    fast = {name: weight - 0.1 * slope for (name, weight), slope in zip(weights.items(), slopes, strict=True)}
    torch.func.functional_call(model, fast, (batch(),)).pow(2).mean().backward()


@pytest.mark.parametrize("train", [penalized, adapted])
def test_gradients_of_gradients_are_backward_and_of_a_layer(train: Callable[[nn.Module], None]) -> None:
    model = perceptron()
    kernels = kernels_of(model, lambda: train(model))
    with Products() as counted:
        train(model)
    assert kernels.model_flops() == counted.flops
    assert not any(row["phase"] == Phase.RECOMPUTE for row in kernels.spans)
    assert set(layers_of(kernels, Phase.BACKWARD)) == {"0", "2"}


def test_what_changes_weights_after_the_last_backward_run_is_the_update_where_there_is_no_optimizer() -> None:
    gc.collect()
    gc.freeze()  # an optimizer that another test holds is none of this loop's
    model = perceptron()

    def step() -> None:
        slopes = torch.autograd.grad(model(batch()).mean(), list(model.parameters()))
        with torch.no_grad():
            for weight, slope in zip(model.parameters(), slopes, strict=True):
                weight.sub_(slope)

    kernels = kernels_of(model, step, steps=2)
    assert phases_of(kernels, "aten::sub_") == {Phase.UPDATE}
    assert phases_of(kernels, "aten::addmm") == {Phase.FORWARD}


def test_a_gradient_taken_amid_a_step_leaves_the_forward_phase() -> None:
    model = perceptron()

    def step() -> None:
        given = batch().requires_grad_()
        torch.autograd.grad(model(given).sum(), given)
        model(batch().square()).log_softmax(1).mean().backward()

    assert phases_of(kernels_of(model, step), "aten::square") <= {Phase.FORWARD}
    assert phases_of(kernels_of(model, step), "aten::_log_softmax") == {Phase.FORWARD}


def test_the_work_of_sparse_products_is_unknown() -> None:
    model, sparse = nn.Linear(2, 2), torch.eye(4).to_sparse()

    def step() -> None:
        torch.sparse.mm(sparse, torch.ones(4, 4))
        model(torch.ones(1, 2)).sum().backward()

    kernels = kernels_of(model, step)
    (row,) = (each for each in kernels.operators("aten::addmm") if each["phase"] == Phase.OUTSIDE)
    assert (row["work"], row["operation"]) == (-1, Operation.MATMUL)
    assert kernels.missing["counts of kernels"].startswith("1 of 3 products are not counted (aten::addmm): ")


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_a_product_without_a_rule_is_reported_and_one_made_of_others_is_not() -> None:
    model, sparse = nn.Bilinear(2, 3, 4), torch.eye(4).to_sparse()

    def step() -> None:
        model(torch.ones(1, 2), torch.ones(1, 3)).sum().backward()

    def with_sparse_data() -> None:
        torch.sparse.mm(sparse, sparse)
        step()

    assert "counts of kernels" not in kernels_of(model, step).missing
    assert "(aten::_sparse_sparse_matmul)" in kernels_of(model, with_sparse_data).missing["counts of kernels"]
