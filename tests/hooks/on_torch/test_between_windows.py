"""Between windows, as in a clean one, nothing of tbdprof's runs at a module's call or at an allocation."""

import sys
from collections.abc import Callable, Iterator
from types import FrameType

import pytest
import torch
from torch import nn

from tbdprof.hooks.on_torch import hook
from tbdprof.hooks.on_torch.facade import TorchHook

GIVEN = ["_step_begins", "_step_ends"]
FOUND = ["quiet", "_step_found", *GIVEN]  # `quiet` keeps what fails in a callback from the loop
SETTLES = 3  # steps, the shortest warm-up


@pytest.fixture
def attached() -> Iterator[TorchHook]:
    torch_hook = hook()
    torch_hook.attach()
    yield torch_hook
    torch_hook.close()


def network(layers: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers)))


def trainer_of(model: nn.Module, *more: torch.Tensor) -> torch.optim.Optimizer:
    return torch.optim.SGD([*model.parameters(), *more], lr=0.1)


def step(model: nn.Module, trainer: torch.optim.Optimizer) -> None:
    trainer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    trainer.step()


def calls_of_tbdprof(act: Callable[[], None]) -> list[str]:
    """Return the names of tbdprof's functions that are called meanwhile, in order."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/hooks/" in frame.f_code.co_filename.replace("tests/hooks", ""):
            called.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return called


def watched_once(torch_hook: TorchHook, window: str, train: Callable[[], None]) -> None:
    torch_hook.start(window)
    train()
    torch_hook.mark_step()
    torch_hook.stop()


@pytest.mark.parametrize("window", [None, "memory", "kernels"])
@pytest.mark.parametrize("layers", [1, 20])
def test_a_step_of_a_given_model_calls_two_functions(attached: TorchHook, layers: int, window: str | None) -> None:
    model = network(layers)
    trainer = trainer_of(model)
    attached.watch([model], [trainer])
    if window is not None:
        watched_once(attached, window, lambda: step(model, trainer))

    assert calls_of_tbdprof(lambda: step(model, trainer)) == GIVEN


@pytest.mark.parametrize("layers", [1, 20])
def test_a_step_of_a_found_model_calls_as_many_whatever_its_size(attached: TorchHook, layers: int) -> None:
    model = network(layers)
    trainer = trainer_of(model)
    attached.watch([], [])
    step(model, trainer)

    assert sorted(calls_of_tbdprof(lambda: step(model, trainer))) == sorted(FOUND)


def test_the_search_for_models_pauses_even_where_a_weight_belongs_to_none(attached: TorchHook) -> None:
    model, alone = network(20), torch.ones(2, requires_grad=True)
    trainer = trainer_of(model, alone)
    attached.watch([], [])
    for _ in range(SETTLES - 1):
        step(model, trainer)
    assert calls_of_tbdprof(lambda: step(model, trainer)).count("_call_found") > 20  # it searches until here

    assert sorted(calls_of_tbdprof(lambda: step(model, trainer))) == sorted(FOUND)


def test_the_search_goes_on_in_a_window_and_pauses_after_it(attached: TorchHook) -> None:
    model, late, alone = network(2), network(3), torch.ones(2, requires_grad=True)
    trainer = trainer_of(nn.ModuleList([model, late]), alone)
    attached.watch([], [])
    for _ in range(SETTLES):
        step(model, trainer)

    def with_both() -> None:
        late(torch.ones(1, 2)).sum().backward()
        step(model, trainer)

    watched_once(attached, "memory", with_both)

    named = {parameter.name for parameter in attached.facts().parameters}
    assert {"sequential0.0.weight", "sequential1.2.bias"} <= named
    assert sorted(calls_of_tbdprof(lambda: step(model, trainer))) == sorted(FOUND)


def test_a_new_optimizer_begins_the_search_again(attached: TorchHook) -> None:
    first, alone = network(2), torch.ones(2, requires_grad=True)
    attached.watch([], [])
    trainer = trainer_of(first, alone)
    for _ in range(SETTLES):
        step(first, trainer)
    second = network(3)
    later = trainer_of(second)
    for _ in range(SETTLES):
        step(second, later)

    assert "sequential1.2.bias" in {parameter.name for parameter in attached.facts().parameters}


def test_a_parameter_that_is_replaced_within_a_window_is_read_anew(attached: TorchHook) -> None:
    """Owners are read with what the last reading found, where that still holds."""
    model = network(2)
    trainer = trainer_of(model)
    attached.watch([model], [trainer])
    watched, rows = attached._require().watch.watched, []
    attached.start("memory")
    for new in (None, nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(4, 2))):
        if new is not None:
            model[1].weight = new
        model[1].register_buffer("extra", new)
        rows.append((watched.parameters(), watched.buffers()))
        attached.mark_step()
    attached.stop()

    for (parameters, buffers), size in zip(rows, (2, 3, 4), strict=True):
        found = dict(parameters)["1.weight"]
        assert found.shape == (size, 2)
        assert [name for name, _ in buffers] == ([] if size == 2 else ["1.extra"])
