"""Windows that cannot begin or end as they should leave torch as it was."""

import os
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch._C._profiler import _ExtraFields_Allocation
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from tbdprof.errors import UnavailableError, UsageError
from tbdprof.facts.records import Strings
from tbdprof.hooks import Setting
from tbdprof.hooks.on_torch import hook
from tbdprof.hooks.on_torch.facade import TorchHook
from tbdprof.hooks.on_torch.memory import existing
from tbdprof.hooks.on_torch.memory.accounting import accounting_flag
from tbdprof.hooks.on_torch.session import libraries
from tbdprof.hooks.on_torch.session.markers import Markers
from tbdprof.hooks.on_torch.session.reading import read
from tbdprof.hooks.on_torch.session.session import Session, is_profiler_active
from tbdprof.hooks.on_torch.watch import owners
from tbdprof.hooks.on_torch.watch.thread_members import Members

Trained = tuple[TorchHook, nn.Module, torch.optim.Optimizer]


@pytest.fixture
def trained() -> Iterator[Trained]:
    model = nn.Linear(2, 2)
    trainer = torch.optim.SGD(model.parameters(), 0.1)
    torch_hook = hook()
    torch_hook.attach()
    torch_hook.watch([model], [trainer])
    yield torch_hook, model, trainer
    torch_hook.close()


def test_nothing_happens_to_memory_outside_every_range() -> None:
    """What torch's tree lacks of a GPU: only what lies within a range is in it."""
    session = Session("memory", threads=Members())
    kept = torch.empty(1000)
    del kept
    with pytest.raises(UnavailableError):  # no window's first marker was placed
        read(session.end(), {}, lambda *_: None)

    result = session._profile.kineto_results
    assert result is not None
    roots = [root.typed[1] for root in result.experimental_event_tree()]
    assert roots
    assert not any(isinstance(fields, _ExtraFields_Allocation) for fields in roots)


def state(model: nn.Module, trainer: torch.optim.Optimizer) -> list[object]:
    hooks = [model._forward_hooks, model._forward_pre_hooks]
    hooks += [trainer._optimizer_step_pre_hooks, trainer._optimizer_step_post_hooks]
    shared = [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]
    shared += [modules._global_forward_hooks, modules._global_forward_pre_hooks]
    return [[dict(each) for each in (*hooks, *shared)], is_profiler_active()]


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("kind", "where", "name"),
    [
        ("memory", libraries, "stop_polling"),
        ("memory", existing, "blocks"),
        ("memory", owners, "everything"),
        ("memory", Markers, "place"),
        ("memory", existing, "uncounted"),
        ("kernels", libraries, "stop_polling"),
        ("kernels", Markers, "place"),
    ],
)
def test_a_window_interrupted_as_it_begins_leaves_nothing_behind(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, kind: str, where: object, name: str
) -> None:
    torch_hook, model, trainer = trained
    before = state(model, trainer)
    with monkeypatch.context() as patched:
        patched.setattr(where, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            torch_hook.start(kind)
    assert state(model, trainer) == before
    torch_hook.start(kind)
    torch_hook.mark_step()
    torch_hook.stop()
    drained = torch_hook.drain(Strings())
    assert (len(drained.marks), drained.missing) == (1, {})


def test_a_memory_window_interrupted_as_it_ends_is_over_and_its_events_are_kept(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_hook, model, trainer = trained
    before = state(model, trainer)
    torch_hook.start("memory")
    kept = torch.empty(1000)
    torch_hook.mark_step()
    with monkeypatch.context() as patched:
        patched.setattr(existing, "tensors", interrupted)
        with pytest.raises(KeyboardInterrupt):
            torch_hook.stop()
    assert state(model, trainer) == before
    drained = torch_hook.drain(Strings())
    assert 4 * len(kept) in drained.tables["allocation"]["allocated_bytes"]
    assert len(drained.marks) == 1


def test_what_is_raised_as_an_open_window_ends_keeps_nothing_from_being_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Linear(2, 2)
    trainer = torch.optim.SGD(model.parameters(), 0.1)
    flag = accounting_flag()
    assert flag is not None
    before = [state(model, trainer), dict(os.environ), flag.value, torch.get_num_threads()]
    torch_hook = hook()
    torch_hook.prepare(Setting(device="cpu", threads=torch.get_num_threads() + 1))
    torch_hook.watch([model], [trainer])
    torch_hook.start("memory")
    monkeypatch.setattr(existing, "tensors", interrupted)
    with pytest.raises(KeyboardInterrupt):
        torch_hook.close()
    assert [state(model, trainer), dict(os.environ), flag.value, torch.get_num_threads()] == before


def test_an_unknown_window_is_refused_and_the_known_ones_are_listed(trained: Trained) -> None:
    with pytest.raises(UsageError, match="unknown window 'clean': choose memory or kernels or out_of_memory"):
        trained[0].start("clean")
    assert not is_profiler_active()
