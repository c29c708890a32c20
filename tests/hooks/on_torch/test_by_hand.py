"""Loops without an optimizer: a step is a backward pass and the update after it."""

import gc
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from tbdprof.hooks.on_torch import hook
from tbdprof.hooks.on_torch.facade import TorchHook

STEPS = 4


@pytest.fixture
def attached() -> Iterator[TorchHook]:
    gc.collect()
    gc.freeze()  # an optimizer that another test holds is none of this loop's
    torch_hook = hook()
    torch_hook.attach()
    torch_hook.watch([], [])
    yield torch_hook
    torch_hook.close()


def in_place(weight: torch.Tensor) -> None:
    with torch.no_grad():
        weight -= 0.1 * weight.grad


def through_data(weight: torch.Tensor) -> None:
    weight.data.add_(weight.grad, alpha=-0.1)


def no_update(weight: torch.Tensor) -> None:
    weight.grad = None


@pytest.mark.parametrize(("update", "found"), [(in_place, STEPS - 1), (through_data, STEPS - 1), (no_update, 0)])
@pytest.mark.parametrize("accumulates", [1, 2])
def test_a_step_by_hand_ends_where_the_next_pass_begins_and_needs_an_update(
    attached: TorchHook, update: Callable[[torch.Tensor], None], found: int, accumulates: int
) -> None:
    model, seen = nn.Linear(8, 4), list[object]()
    attached.on_update(seen.append)
    for _ in range(STEPS):
        model.zero_grad()
        for _ in range(accumulates):
            model(torch.ones(2, 8)).sum().backward()
        for weight in model.parameters():
            update(weight)
    assert len(seen) == found
    assert len(set(map(id, seen))) <= 1


@pytest.mark.parametrize("replaces", [False, True])
def test_without_a_module_a_step_by_hand_ends_where_the_next_backward_pass_begins(
    attached: TorchHook, replaces: bool
) -> None:
    weight, seen = torch.ones(8, requires_grad=True), list[object]()
    attached.on_update(lambda _: seen.append([each.shape for each in attached.facts().parameters]))
    for _ in range(STEPS):
        (weight * 3).sum().backward()
        if replaces:
            weight = (weight - 0.1 * weight.grad).detach().requires_grad_()
        else:
            in_place(weight)
            weight.grad = None
    assert seen == [[(8,)]] * (STEPS - 1)


def test_where_there_is_an_optimizer_its_steps_alone_count(attached: TorchHook) -> None:
    model, other, seen = nn.Linear(8, 4), nn.Linear(8, 4), list[object]()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached.on_update(seen.append)
    for _ in range(STEPS):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        other(torch.ones(2, 8)).sum().backward()
        for weight in other.parameters():
            in_place(weight)
    assert seen == [optimizer] * STEPS


def test_nothing_of_it_stays_in_torch(attached: TorchHook) -> None:
    engine = torch.autograd._engine_run_backward
    hooks = dict(nn.modules.module._global_forward_pre_hooks)
    attached.on_update(print)
    assert torch.autograd._engine_run_backward is not engine
    model = nn.Linear(8, 4)
    model(torch.ones(2, 8)).sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    assert torch.autograd._engine_run_backward is engine
    assert dict(nn.modules.module._global_forward_pre_hooks).keys() <= hooks.keys()
