"""Trains a small net of Gluon's for 14 steps, observed or not; prints what it left behind as JSON.

python on_mxnet.py HOW THREADS: what HOW may be is written in on_torch.py.
"""

import json
import os
import random
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import known_peaks
import numpy as np
from state import digest, generators, methods, process

import tbdprof
from tbdprof.hooks.on_mxnet.memory import jump_slots

HOW, THREADS = sys.argv[1], sys.argv[2]
STEPS = 20
IN_MEMORY = 5  # warm-up 0 and 1, clean 2 and 3, memory 4 to 7, clean 8 and 9

os.environ["OMP_NUM_THREADS"] = THREADS
vars(np).setdefault("bool", bool)  # numpy 1.24 took the name away, and MXNet 1.9 reads it
if HOW == "prepared":
    tbdprof.prepare("mxnet")

import mxnet as mx  # noqa: E402
from mxnet import autograd, gluon  # noqa: E402
from mxnet.gluon import nn  # noqa: E402
from mxnet.gluon.parameter import Parameter  # noqa: E402

from tbdprof.hooks.on_mxnet.session import layout  # noqa: E402


class Block(nn.HybridBlock):
    """A residual block of two convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        with self.name_scope():
            self.conv1, self.bn1 = nn.Conv2D(width, 3, padding=1, use_bias=False, in_channels=width), nn.BatchNorm()
            self.conv2, self.bn2 = nn.Conv2D(width, 3, padding=1, use_bias=False, in_channels=width), nn.BatchNorm()

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        """Return maps as large as the ones given."""
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + x)


def main() -> None:
    """Train, and print what is left."""
    random.seed(1)
    np.random.seed(2)
    mx.random.seed(3)
    model = nn.HybridSequential()
    model.add(
        nn.Conv2D(16, 3, padding=1), Block(16), nn.MaxPool2D(4), Block(16), nn.Flatten(), nn.Dropout(0.5), nn.Dense(10)
    )
    model.initialize(mx.init.Xavier())
    model.hybridize()
    trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9, "wd": 1e-4})
    watched = () if HOW == "found" else (model, trainer)
    observed = HOW != "unobserved"
    if HOW == "prepared" or (HOW, THREADS) == ("attached", 2):  # what measures the peaks must not be noticed either
        known_peaks.measure_once()
    else:
        known_peaks.use()
    options = {"warmup": 2, "steps": 2, "output": Path("observed.tbd")}
    with tbdprof.profile(*watched, framework="mxnet", **options) if observed else nullcontext() as prof:
        for step in range(STEPS):
            train(model, trainer)
            if prof is not None:
                disturb(step, model, trainer, prof)
                prof.step(8)
    print(json.dumps({"left": left(model, trainer), "windows": windows(prof)}))


def train(model: nn.HybridBlock, trainer: gluon.Trainer) -> None:
    """Take one step on a batch that draws on every generator."""
    images = mx.nd.random.uniform(shape=(8, 3, 32, 32)) * random.uniform(0.5, 1.5)
    images = images + mx.nd.array(np.random.standard_normal(images.shape))
    labels = mx.nd.random.randint(0, 10, shape=(8,)).astype("float32")
    with autograd.record():
        loss = gluon.loss.SoftmaxCrossEntropyLoss()(model(images), labels)
    loss.backward()
    trainer.step(8)


def disturb(step: int, model: nn.HybridBlock, trainer: gluon.Trainer, prof: tbdprof.Profiler) -> None:
    """Do what a profiler must not, or what it must bear."""
    if step != IN_MEMORY or HOW in ("attached", "prepared", "found"):
        return
    assert prof.recording.windows[-1].name == "memory"
    if HOW == "draws":
        mx.nd.random.uniform(shape=1).wait_to_read()
    if HOW == "nudges":
        weight = next(iter(model.collect_params().values()))
        values = weight.data().asnumpy()
        values.flat[0] = np.nextafter(values.flat[0], np.float32(2))
        weight.set_data(mx.nd.array(values))
    if HOW.startswith("forks"):
        child = os.fork()
        if child == 0:
            in_child(model, trainer, prof)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


def in_child(model: nn.HybridBlock, trainer: gluon.Trainer, prof: tbdprof.Profiler) -> None:
    """Train on in a forked child, past the ends of the windows."""
    signal.alarm(120)  # rather than hang; long, for the machine may be busy
    for _ in range(STEPS):
        train(model, trainer)
        if HOW == "forks_and_steps":
            prof.step(8)
    mx.nd.waitall()
    if HOW == "forks_and_exits":
        sys.exit(0)
    os._exit(0)


def left(model: nn.HybridBlock, trainer: gluon.Trainer) -> dict[str, object]:
    """Return what must be the same whether or not the run was observed."""
    values = [(name, value) for name, value in sorted(model._collect_params_with_prefix().items())]
    trained = [(name, value) for name, value in values if value.grad_req != "null"]
    states = trainer._updaters[0].states
    mx.nd.waitall()
    return {
        "parameters": digest((name, value.data().asnumpy().tobytes()) for name, value in trained),
        "gradients": digest((name, value.grad().asnumpy().tobytes()) for name, value in trained),
        "buffers": digest(
            (name, value.data().asnumpy().tobytes()) for name, value in values if value.grad_req == "null"
        ),
        "optimizer": digest((str(index), state.asnumpy().tobytes()) for index, state in sorted(states.items())),
        "mxnet generator": mx.nd.random.uniform(shape=4).asnumpy().tolist(),
        **generators(),
        "methods": methods(
            mx.gluon.Block, mx.gluon.HybridBlock, nn.HybridSequential, Block, gluon.Trainer, mx.nd.NDArray, Parameter,
            mx._ctypes.ndarray.CachedOp, autograd._RecordingStateScope,
        )
        | {f"autograd.{name}": value for name, value in functions(autograd).items()}
        | {f"profiler.{name}": value for name, value in functions(mx.profiler).items()},
        "own attributes": [sorted(vars(each)) for each in [*blocks(model), trainer]],
        "hooks": [[len(each._forward_hooks), len(each._forward_pre_hooks)] for each in blocks(model)],
        "slots lead into the library": [into_mxnet(slot.read()) for slot in found_slots()],
        "recording": [autograd.is_recording(), autograd.is_training()],
        "written": sorted(path.name for path in Path().iterdir() if path.name != "observed.tbd"),
        **process(),
    }  # fmt: skip


def functions(module: object) -> dict[str, str]:
    """Return where a module's functions were written."""
    return methods(type("", (), {name: each for name, each in vars(module).items() if callable(each)}))


def blocks(model: nn.HybridBlock) -> list[nn.HybridBlock]:
    """Return a block and all within it."""
    return [model, *(inner for child in model._children.values() for inner in blocks(child))]


def found_slots() -> tuple[jump_slots.Slot, ...]:
    """Return the slots through which MXNet reports its allocations."""
    return jump_slots.find(mx.base._LIB, (layout.ON_ALLOC, layout.ON_FREE))


def into_mxnet(address: int) -> bool:
    """Return whether an address lies in MXNet's library."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(bound, 16) for bound in line.split()[0].split("-"))
        if begin <= address < end:
            return line.endswith("libmxnet.so")
    return False


def windows(prof: tbdprof.Profiler | None) -> list[list[object]]:
    """Return the windows recorded and how many steps each has."""
    if prof is None:
        return []
    allowed = {"layers", "layers of kernels", "events (memory)", "events (kernels)"}
    assert set(prof.recording.missing) <= allowed, prof.recording.missing
    return [[window.name, window.state, len(window.table("step"))] for window in prof.recording.windows]


main()
