"""Where tbdprof fails while torch trains, each weight ends bit for bit as without it, and torch is left as it was."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

import tbdprof
from tbdprof.errors import UnavailableError
from tbdprof.facts.file.reading import load
from tbdprof.facts.file.writing import Writer
from tbdprof.hooks.on_torch.facade import TorchHook
from tbdprof.hooks.on_torch.kernels import window as kernels
from tbdprof.hooks.on_torch.memory import window as memory
from tbdprof.hooks.on_torch.session.markers import Markers
from tbdprof.hooks.on_torch.watch import owners
from tbdprof.loop.instruments import HostLoad

STEPS = 60


def trained(step: Callable[[nn.Module, nn.Module], Callable[[], object]]) -> list[bytes]:
    """Train a small net; `step` takes model and optimizer and returns what to call after each step."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    ended = step(model, optimizer)  # type: ignore[arg-type]
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 16)), torch.randint(4, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ended()
    return [each.detach().numpy().tobytes() for each in model.parameters()]


@pytest.fixture(scope="module")
def alone() -> list[bytes]:
    return trained(lambda model, optimizer: lambda: None)


@pytest.fixture(autouse=True)
def _unprobed(monkeypatch: pytest.MonkeyPatch):
    """Measure no peak: that takes the longest, and nothing here needs one."""

    def unknown(*arguments: object) -> None:
        raise UnavailableError("not measured in this test")

    monkeypatch.setattr(TorchHook, "peaks", unknown)


def profiled(path: Path | None = None) -> tuple[list[bytes], tbdprof.Profiler]:
    made = list[tbdprof.Profiler]()

    def begin(model: nn.Module, optimizer: nn.Module) -> Callable[[], object]:
        prof = tbdprof.profile(model, optimizer, warmup=2, steps=3, output=path)
        made.append(prof)
        prof.start()
        return lambda: prof.step(8)

    try:
        return trained(begin), made[0]
    finally:
        made[0].stop()


PLANTED = [
    (memory.MemoryWindow, "__init__", "memory"),
    (memory.MemoryWindow, "mark_step", "memory"),
    (memory.MemoryWindow, "stop", "memory"),
    (memory.MemoryWindow, "drain", "memory"),
    (memory, "build", "memory"),
    (owners, "gradients_of", "memory"),
    (owners, "inputs", "memory"),
    (Markers, "place", "memory"),
    (kernels.KernelsWindow, "__init__", "kernels"),
    (kernels.KernelsWindow, "mark_step", "kernels"),
    (kernels.KernelsWindow, "stop", "kernels"),
    (kernels, "build", "kernels"),
    (HostLoad, "drain", "host"),
    (Writer, "append", "file"),
    (TorchHook, "peaks", "peaks"),
    (TorchHook, "attach", "given up"),
    (TorchHook, "facts", "given up"),
    (TorchHook, "close", "given up"),
]


@pytest.mark.parametrize(("owner", "name", "key"), PLANTED, ids=lambda each: getattr(each, "__name__", each))
def test_a_planted_failure_changes_no_bit_of_the_training_and_is_reported(
    alone: list[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: object, name: str, key: str
):
    planted = OSError("planted") if key == "file" else KeyError("planted")

    original = getattr(owner, name)

    def fails(*arguments: object, **options: object) -> None:
        if name in ("stop", "close"):  # what they undo is undone by then, as each of their parts is
            original(*arguments)
        raise planted

    monkeypatch.setattr(owner, name, fails)
    weights, prof = profiled(tmp_path / "a.tbd")

    assert weights == alone
    assert "planted" in prof.recording.missing[key]
    assert key == "file" or prof.recording.missing[key].endswith("please report this line")
    assert "planted" in str(prof)
    for hooks in (modules._global_forward_hooks, modules._global_forward_pre_hooks):
        assert len(hooks) == 0
    assert optimizers._global_optimizer_pre_hooks == {}
    assert torch.autograd.profiler._is_profiler_enabled is False
    if key in ("memory", "kernels", "host") and owner is not Markers:
        kept = load(tmp_path / "a.tbd")
        assert kept.missing == prof.recording.missing
        assert kept.run.complete
        other = "kernels" if key == "memory" else "memory"
        assert len(kept.named(other)[0].table("step")) == 4


def test_profiling_itself_changes_no_bit(alone: list[bytes]):
    weights, prof = profiled()

    assert weights == alone
    assert "given up" not in str(prof.recording.missing)


def test_tensors_of_the_cpu_and_numpys_numbers_count_and_those_elsewhere_are_refused():
    with tbdprof.profile(nn.Linear(2, 2), warmup=2, steps=3) as prof:
        for units in (torch.tensor(8), torch.tensor(8.0), np.int64(8)):
            prof.step(units)
        for units in (
            torch.empty((), device="meta"),
            torch.ones(1),
            torch.ones(2),
            torch.tensor(True),
            torch.tensor(8j),
        ):
            with pytest.raises(tbdprof.TbdprofError, match="give every step the samples"):
                prof.step(units)
