"""Loops that torch.compile compiles in the ways that people use it, and what torch itself says of each without tbdprof.

Each is trained twice from the same weights and seed, with the same compiled code: under tbdprof, and with hooks on what
torch saves for the backward pass.
"""

import json
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config
from judges.process import Json
from torch import Tensor, nn
from torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

BATCH, CLASSES, WIDE, WORDS, LENGTH = 4, 10, 48, 64, 6
COMPILING = 4  # steps until everything is compiled
OF_PYTHON_3_13_0 = "Guards may run slower"  # torch itself warns on that version


class Layers(nn.Module):
    """Dense layers; `between` is called with what the first one returns."""

    def __init__(self, between: Callable[[Tensor], Tensor] = torch.relu, *, checkpoints: bool = False) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(WIDE, 32), nn.Linear(32, 24), nn.Linear(24, CLASSES)
        self._between, self._checkpoints = between, checkpoints

    def forward(self, values: Tensor) -> Tensor:
        if self._checkpoints:
            inside: Tensor = checkpoint(self._inside, values, use_reentrant=False)
        else:
            inside = self._inside(values)
        return self.last(inside)

    def _inside(self, values: Tensor) -> Tensor:
        return torch.tanh(self.middle(self._between(self.first(values))))


class Words(nn.Module):
    """A transformer's block."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.last = nn.Linear(16, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.block(self.embedding(words))).mean(1)


def broken(values: Tensor) -> Tensor:
    torch._dynamo.graph_break()
    return torch.relu(values)


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDE, 32, bias=False), nn.Tanh(), nn.Linear(32, CLASSES, bias=False))


def vector(_: int) -> Tensor:
    return torch.randn(BATCH, WIDE)


def words(step: int) -> Tensor:
    return torch.randint(WORDS, (BATCH + step % 3, LENGTH))


EAGER: Json = {"backend": "aot_eager"}


@dataclass
class Setup:
    """A model, and what of its step is compiled, and how."""

    model: Callable[[], nn.Module]
    batch: Callable[[int], Tensor]
    compiles: Sequence[str] = ("model",)  # the model, the loss, the update, the whole step
    options: Json = field(default_factory=lambda: EAGER)
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD
    settings: Json = field(default_factory=lambda: {"lr": 0.1, "momentum": 0.9})


SETUPS = {
    "inductor": Setup(two_layers, vector, options={"fullgraph": True}),  # takes a C++ compiler, and long with it
    "dynamic": Setup(Words, words, options={**EAGER, "dynamic": True}),
    "half": Setup(partial(Layers, broken), vector, ("loss",), around=partial(torch.autocast, "cpu", torch.bfloat16)),
    "checkpointed": Setup(
        partial(Layers, torch.sin, checkpoints=True),
        vector,
        ("model", "update"),
        optimizer=torch.optim.AdamW,
        settings={"lr": 1e-3},
    ),
    "step": Setup(Layers, vector, ("step",)),
}


class Loop:
    """A setup's loop from its seed."""

    def __init__(self, setup: Setup) -> None:
        self.model = setup.model()
        self.optimizer = setup.optimizer(self.model.parameters(), **setup.settings)
        self._first = {name: each.clone() for name, each in self.model.state_dict().items()}
        self.before: set[int] = set()  # the storages that are there when the forward pass begins
        self.steps, self._setup = 0, setup
        compiled = partial(torch.compile, **setup.options)
        self._net = compiled(self.model) if "model" in setup.compiles else self.model
        self._loss = compiled(self._loss_of) if "loss" in setup.compiles else self._loss_of
        self._update = compiled(self.optimizer.step) if "update" in setup.compiles else self.optimizer.step
        self._train = compiled(self._trained) if "step" in setup.compiles else self._trained

    def begin(self) -> None:
        """Go back to the first weights."""
        self.model.load_state_dict(self._first)
        self.optimizer.state.clear()
        self.optimizer.zero_grad()
        self.steps = 0
        torch.manual_seed(0)

    def weights(self) -> list[Tensor]:
        """Return a copy of the weights."""
        return [each.detach().clone() for each in self.model.parameters()]

    def step(self) -> None:
        """Take a step."""
        given = self._setup.batch(self.steps)
        wanted = torch.randint(CLASSES, given.shape[:1])
        self.steps += 1
        kept = [*self.model.parameters(), *self.model.buffers(), given, wanted]
        self.before = {each.untyped_storage().data_ptr() for each in kept}
        self._train(given, wanted)

    def _loss_of(self, given: Tensor, wanted: Tensor) -> Tensor:
        return functional.cross_entropy(self._net(given), wanted)

    def _trained(self, given: Tensor, wanted: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        with self._setup.around():
            loss = self._loss(given, wanted)
        loss.backward()  # type: ignore[no-untyped-call]
        self._update()
        return loss.detach()


def alone(loop: Loop, steps: int) -> list[list[int]]:
    """Train without tbdprof; return for each step the bytes of each storage that it saved."""
    loop.begin()
    packed = dict[int, int]()

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in loop.before and storage.nbytes():
            packed[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        saved = []
        for _ in range(steps):
            packed.clear()
            loop.step()
            saved.append(sorted(packed.values()))
    return saved


def watched(loop: Loop, recording: Path) -> Json:
    """Train under tbdprof; return what is known then, and write the recording."""
    import tbdprof
    from tbdprof.report.json_report import document

    loop.begin()
    for _ in range(COMPILING):
        loop.step()
    assert get_compilation_metrics()  # of the steps so far: torch does keep them
    clear_compilation_metrics()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", OF_PYTHON_3_13_0, RuntimeWarning)
        with tbdprof.profile(loop.model, loop.optimizer, warmup=1, steps=2) as profiler:
            while profiler.active:
                loop.step()
                profiler.step()
    profiler.save(recording)
    (window,) = profiler.recording.named("memory")
    return {
        "last": COMPILING + int(window.table("step")["index"][-1]),
        "compiled": [each.co_name for each in get_compilation_metrics()],
        "warned": [str(each.message) for each in warned],
        "report": document(profiler.summary),
        "trained": sum(each.nbytes for each in loop.model.parameters()),
        "parameters": len(list(loop.model.parameters())),
    }


def main(folder: str, *names: str) -> None:
    """Train each setup both ways and print what came of it."""
    warnings.filterwarnings("ignore", OF_PYTHON_3_13_0, RuntimeWarning)
    import known_peaks

    import tbdprof

    torch._logging.set_logs(dynamo=logging.ERROR)
    # With two small kernels, these cost more time than they save.
    torch._inductor.config.cpp_cache_precompile_headers = False
    torch._inductor.config.cpp.simdlen = 1
    known_peaks.use()
    tbdprof.prepare("torch")
    found: Json = {}
    for name in names:
        loop = Loop(SETUPS[name])
        facts = watched(loop, Path(folder, f"{name}.tbd"))
        weights = loop.weights()
        saved = alone(loop, loop.steps)
        same = all(torch.equal(one, other) for one, other in zip(weights, loop.weights(), strict=True))
        found[name] = {**facts, "saved": saved[facts["last"]], "same": same}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
