"""Optimizers of other packages: with a class name of torch's, or with a state of tensors that wrap others."""

from typing import Any

import known_peaks
import pytest

torch = pytest.importorskip("torch")

import tbdprof  # noqa: E402
from tbdprof.analysis.memory.identities import state_arrays  # noqa: E402
from tbdprof.facts.records import Optimizer, Role  # noqa: E402
from tbdprof.hooks.on_torch.facts import optimizer_list, parameter_list  # noqa: E402
from tbdprof.hooks.on_torch.watch import owners  # noqa: E402
from tbdprof.hooks.on_torch.watch.watched import Watched  # noqa: E402

WIDE, RANK, FLOAT = 32, 8, 4
PACKAGE = __name__.partition(".")[0]


class Quantized(torch.Tensor):  # type: ignore[misc, name-defined]
    """One byte for each value, and one scale for all."""

    @staticmethod
    def __new__(cls, codes: Any, scale: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes: Any, scale: Any) -> None:
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["codes", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Any], *_: object) -> Any:
        return cls(inner["codes"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: object, **__: object) -> Any:
        if function is torch.ops.aten.detach.default:
            return _[1][0]  # type: ignore[index]
        raise NotImplementedError(function)


class AdamW(torch.optim.Optimizer):  # type: ignore[misc, name-defined]
    """Keeps less than torch's of this name: a few rows of what it sums up."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    def step(self, closure: object = None) -> None:
        for each in self.param_groups[0]["params"]:
            rows = self.state[each].setdefault("sums", torch.zeros(RANK, each.shape[-1]))
            rows += each.grad[:RANK] ** 2
            each.data -= 0.01 * each.grad


class InBytes(torch.optim.Optimizer):  # type: ignore[misc, name-defined]
    """Keeps a byte for each weight."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    def step(self, closure: object = None) -> None:
        for each in self.param_groups[0]["params"]:
            if "sums" not in self.state[each]:
                self.state[each]["sums"] = Quantized(torch.zeros(each.shape, dtype=torch.uint8), torch.ones(1))
            self.state[each]["sums"].codes.add_(1)
            each.data -= 0.01 * each.grad


class Averaging:
    """Wraps torch's, and keeps averages in its state; it is no optimizer itself, as in the package `schedulefree`."""

    def __init__(self, parameters: Any) -> None:
        self.base = torch.optim.SGD(parameters, 0.01)
        self.zero_grad = self.base.zero_grad

    def step(self) -> None:
        self.base.step()
        for each in self.base.param_groups[0]["params"]:
            self.base.state[each].setdefault("average", torch.zeros_like(each)).lerp_(each.detach(), 0.1)


@pytest.fixture(autouse=True)
def _peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tbdprof.hooks.probing.peaks", None)  # put back at the end
    known_peaks.use()


def memory_of(kind: Any) -> Any:
    """Return the results of the memory of a training with an optimizer."""
    model = torch.nn.Linear(WIDE, WIDE, bias=False)
    optimizer = kind(model.parameters())
    with tbdprof.profile(model, getattr(optimizer, "base", optimizer), warmup=1, steps=2) as prof:
        while prof.active:
            optimizer.zero_grad()
            model(torch.ones(2, WIDE)).sum().backward()
            optimizer.step()
            prof.step(2)
    return prof.summary.memory


def test_an_optimizer_is_torchs_by_its_class_and_not_by_its_name() -> None:
    model = torch.nn.Linear(WIDE, WIDE, bias=False)
    watched = Watched()
    watched.add_model(model)
    optimizers = AdamW(model.parameters()), torch.optim.AdamW(model.parameters())
    for each in optimizers:
        watched.add_optimizer(each)

    theirs, ours = optimizer_list(watched)
    assert (theirs.kind, state_arrays(theirs)) == (f"{PACKAGE}.AdamW", None)
    assert (ours.kind, state_arrays(ours)) == ("adamw", 2)
    assert state_arrays(Optimizer("adamw", ())) == 2


def test_the_state_of_anothers_adamw_is_no_violation() -> None:
    memory = memory_of(AdamW)

    assert memory.violations == ()
    assert memory.roles_max[Role.OPTIMIZER_STATE] == RANK * WIDE * FLOAT


def test_what_a_wrapper_keeps_in_the_state_of_torchs_optimizer_is_no_violation() -> None:
    memory = memory_of(Averaging)

    assert memory.violations == ()
    assert memory.roles_max[Role.OPTIMIZER_STATE] == WIDE * WIDE * FLOAT


def test_state_that_wraps_other_tensors_is_the_optimizers() -> None:
    memory = memory_of(InBytes)

    assert (memory.violations, memory.category_max["unknown"]) == ((), 0)
    assert memory.roles_max[Role.OPTIMIZER_STATE] == WIDE * WIDE + FLOAT


def test_weights_that_wrap_other_tensors_hold_what_these_hold() -> None:
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(Quantized(torch.zeros(4, 8, dtype=torch.uint8), torch.ones(1)), False)
    watched = Watched()
    watched.add_model(model)

    (listed,) = parameter_list(watched)
    assert (listed.name, listed.shape, listed.held_bytes) == ("weight", (4, 8), 4 * 8 + FLOAT)
    held = {row.name: row.bytes for row in owners.owned(Role.WEIGHT, watched.parameters())}
    assert held == {"weight/codes": 4 * 8, "weight/scale": FLOAT}


def test_a_tensor_whose_parts_cannot_be_listed_is_left_alone() -> None:
    class Broken(Quantized):
        def __tensor_flatten__(self) -> Any:
            raise RuntimeError

    broken = Broken(torch.zeros(4, dtype=torch.uint8), torch.ones(1))
    assert owners.owned(Role.OPTIMIZER_STATE, [("sums", broken)]) == []
