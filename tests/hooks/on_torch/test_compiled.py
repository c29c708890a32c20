"""torch.compile: whatever is compiled and whatever is handed over, phases are seen and nothing is compiled again."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from tbdprof.facts.records import Operation, Phase, SpanKind
from tbdprof.hooks.on_torch import hook
from tests.hooks.on_torch.test_hook import Window, record

WIDE, NARROW, BATCH = 32, 8, 4
Step = Callable[[], None]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, NARROW)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(torch.relu(self.first(values)))
        return scores


def wrapped(model: Net, optimizer: torch.optim.Optimizer) -> Step:
    net = torch.compile(model, backend="aot_eager")
    return lambda: step(lambda values: net(values).square().mean(), optimizer, optimizer.step)


def in_place(model: Net, optimizer: torch.optim.Optimizer) -> Step:
    model.compile(backend="aot_eager")
    return lambda: step(lambda values: model(values).square().mean(), optimizer, optimizer.step)


def with_loss(model: Net, optimizer: torch.optim.Optimizer) -> Step:
    def loss(values: torch.Tensor) -> torch.Tensor:
        return model(values).square().mean()

    compiled = torch.compile(loss, backend="eager")
    return lambda: step(compiled, optimizer, optimizer.step)


def update(model: Net, optimizer: torch.optim.Optimizer) -> Step:
    compiled = torch.compile(optimizer.step, backend="aot_eager")
    return lambda: step(lambda values: model(values).square().mean(), optimizer, compiled)


def step(loss: Callable[[torch.Tensor], torch.Tensor], optimizer: torch.optim.Optimizer, take: Step) -> None:
    optimizer.zero_grad()
    loss(torch.randn(BATCH, WIDE)).backward()
    take()


def watched(make: Callable[[Net, torch.optim.Optimizer], Step]) -> tuple[Window, int]:
    """Return what a window holds of a compiled step, and how many frames were compiled since the loop is watched."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    torch_hook = hook()
    torch_hook.attach()
    torch_hook.watch([model], [optimizer])
    taken = make(model, optimizer)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*hooks")
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch itself, in its own compiler
        for _ in range(2):
            taken()
        before = counters["frames"]["total"]
        window = record(torch_hook, taken)
    torch_hook.close()
    return window, counters["frames"]["total"] - before


@pytest.mark.parametrize("make", [wrapped, in_place, with_loss, update])
def test_phases_are_seen_and_nothing_is_compiled_again(make: Callable[[Net, torch.optim.Optimizer], Step]) -> None:
    window, compiled = watched(make)
    assert compiled == 0
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE):
        of_phase = (window.spans["kind"] == SpanKind.PHASE) & (window.spans["phase"] == phase)
        assert of_phase.any(), phase
    forward = window.spans[window.spans["phase"] == Phase.FORWARD]
    names = [window.strings[row["name"]] for row in forward]
    assert names.count("aten::addmm") == 2 * 2  # two layers, two steps
    assert window.bytes_by_phase()[Phase.FORWARD] >= 2 * (BATCH * WIDE + BATCH * NARROW) * 4
    compiles = window.spans[window.spans["operation"] == Operation.COMPILED]
    assert set(compiles["phase"]) <= {Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE}
