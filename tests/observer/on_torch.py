"""Trains a small net of torch's for 14 steps, observed or not; prints what it left behind as JSON.

python on_torch.py HOW THREADS, HOW being: unobserved, attached, prepared, found (nothing handed over), or attached with
a mistake planted in the memory window (draws, nudges), or with a fork there: the child trains on and leaves at once
(forks), goes on reporting its steps to the profiler (forks_and_steps), or leaves as a script does (forks_and_exits).
"""

import json
import os
import random
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

import known_peaks
import numpy as np
from state import digest, generators, methods, process

import tbdprof

HOW, THREADS = sys.argv[1], int(sys.argv[2])
if HOW == "prepared":
    tbdprof.prepare("torch")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.modules import module as modules  # noqa: E402
from torch.optim import optimizer as optimizers  # noqa: E402

STEPS = 20
IN_MEMORY = 5  # warm-up 0 and 1, clean 2 and 3, memory 4 to 7, clean 8 and 9


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return maps as large as the ones given."""
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x
        return functional.relu(y, inplace=True)


def main() -> None:
    """Train, and print what is left."""
    torch.set_num_threads(THREADS)
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), Block(16), nn.MaxPool2d(4), Block(16), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(16 * 8 * 8, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    watched = () if HOW == "found" else (model, optimizer)
    observed = HOW != "unobserved"
    if HOW == "prepared" or (HOW, THREADS) == ("attached", 2):  # what measures the peaks must not be noticed either
        known_peaks.measure_once()
    else:
        known_peaks.use()
    options = {"warmup": 2, "steps": 2, "output": Path("observed.tbd")}
    with tbdprof.profile(*watched, framework="torch", **options) if observed else nullcontext() as prof:
        for step in range(STEPS):
            train(model, optimizer)
            if prof is not None:
                disturb(step, model, optimizer, prof)
                prof.step(8)
    print(json.dumps({"left": left(model, optimizer), "windows": windows(prof)}))


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Take one step on a batch that draws on every generator."""
    images = torch.rand(8, 3, 32, 32) * random.uniform(0.5, 1.5)
    images += torch.from_numpy(np.random.standard_normal(images.shape).astype(np.float32))
    labels = torch.randint(10, (8,))
    optimizer.zero_grad()
    functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


def disturb(step: int, model: nn.Module, optimizer: torch.optim.Optimizer, prof: tbdprof.Profiler) -> None:
    """Do what a profiler must not, or what it must bear."""
    if step != IN_MEMORY or HOW in ("attached", "prepared", "found"):
        return
    assert prof.recording.windows[-1].name == "memory"
    if HOW == "draws":
        torch.rand(1)
    if HOW == "nudges":
        weight = next(model.parameters()).data
        weight.view(-1)[0] = torch.nextafter(weight.view(-1)[0], torch.tensor(2.0))
    if HOW.startswith("forks"):
        child = os.fork()
        if child == 0:
            in_child(model, optimizer, prof)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


def in_child(model: nn.Module, optimizer: torch.optim.Optimizer, prof: tbdprof.Profiler) -> None:
    """Train on in a forked child, past the ends of the windows."""
    signal.alarm(120)  # rather than hang; long, for the machine may be busy
    for _ in range(STEPS):
        train(model, optimizer)
        if HOW == "forks_and_steps":
            prof.step(8)
    if HOW == "forks_and_exits":
        sys.exit(0)
    os._exit(0)


def left(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, object]:
    """Return what must be the same whether or not the run was observed."""
    slots = [
        (f"{i}/{name}", value) for i, state in enumerate(optimizer.state.values()) for name, value in state.items()
    ]
    return {
        "parameters": digest((name, each.detach().numpy().tobytes()) for name, each in model.named_parameters()),
        "gradients": digest((name, each.grad.numpy().tobytes()) for name, each in model.named_parameters()),
        "buffers": digest((name, each.numpy().tobytes()) for name, each in model.named_buffers()),
        "optimizer": digest((name, each.numpy().tobytes()) for name, each in slots),
        "torch generator": digest([("state", torch.get_rng_state().numpy().tobytes())]),
        **generators(),
        "global hooks": {
            name: [type(value).__name__, *map(str, value)] if isinstance(value, dict) else str(value)
            for name, value in sorted({**vars(modules), **vars(optimizers)}.items())
            if name.startswith("_global_") and "lock" not in name
        },
        "hooks": [hooks(each) for each in [*model.modules(), optimizer]],
        "methods": methods(nn.Module, torch.optim.Optimizer, type(optimizer), torch.Tensor, torch.autograd.Function),
        "step": str(vars(type(optimizer))["step"]).partition(" at ")[0],
        "profiler": str(torch._C._autograd._profiler_type()),
        "torch threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "gradients on": torch.is_grad_enabled(),
        **process(),
    }


def hooks(thing: object) -> dict[str, list[str]]:
    """Return the hook tables of a module or an optimizer."""
    return {
        name: [str(key) for key in value]
        for name, value in vars(thing).items()
        if "hook" in name and isinstance(value, dict)
    }


def windows(prof: tbdprof.Profiler | None) -> list[list[object]]:
    """Return the windows recorded and how many steps each has."""
    if prof is None:
        return []
    assert prof.recording.missing == {}, prof.recording.missing
    return [[window.name, window.state, len(window.table("step"))] for window in prof.recording.windows]


main()
