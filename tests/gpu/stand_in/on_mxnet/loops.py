"""Small loops in MXNet on the simulated device, each recorded in this process: `python loops.py NAME FILE`.

Prints as JSON the largest difference between what MXNet's pool reported at the end of a step and what the device had
given out, and what the pool held when it was emptied at last; the recording is in the file.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path

from tbdprof.facts.counters import ALLOCATOR_RESERVED
from tbdprof.facts.file.reading import load
from tbdprof.hooks import FrameworkHook, Setting
from tbdprof.launch.prepared import prepared
from tbdprof.loop.new_run import new_run
from tbdprof.loop.plan import Plan
from tbdprof.loop.profiler import LoopProfiler

DEVICE, BATCH = "cuda:0", 8
IMAGE, WORDS = (BATCH, 3, 33, 33), (BATCH, 20)
PLAN = Plan(warmup=2, steps=3, memory_steps=3, kernel_steps=2, windows=("clean", "memory", "kernels"))


def image_net(**how: bool) -> tuple[object, tuple[int, ...]]:
    """Return a network with a residual sum, of which MXNet makes one operator with the rectifier behind it."""
    from mxnet.gluon import HybridBlock, nn

    class Residual(HybridBlock):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.one, self.two = nn.Conv2D(16, 3, padding=1), nn.Conv2D(16, 3, padding=1)
                self.norm = nn.BatchNorm()

        def hybrid_forward(self, operators, given):  # type: ignore[no-untyped-def]
            mapped = operators.relu(self.norm(self.one(given)))
            return operators.relu(self.two(mapped) + mapped)

    net = nn.HybridSequential()
    with net.name_scope():
        net.add(Residual(), nn.Dropout(0.3), nn.Dense(10))
    if how:
        net.hybridize(**how)
    return net, IMAGE


def recurrent() -> tuple[object, tuple[int, ...]]:
    """Return two layers of LSTM over words, whose state between the passes cuDNN keeps."""
    from mxnet.gluon import nn, rnn

    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Embedding(100, 32), rnn.LSTM(48, 2, dropout=0.1, layout="NTC", input_size=32), nn.Dense(10))
    net.hybridize()
    return net, WORDS


LOOPS: dict[str, Callable[[], tuple[object, tuple[int, ...]]]] = {
    "plain": image_net,
    "hybridized": lambda: image_net(active=True),
    "static": lambda: image_net(active=True, static_alloc=True),
    "recurrent": recurrent,
}


def step_of(name: str, hook: FrameworkHook, batch: int = BATCH) -> Callable[[], float]:
    """Return a step that trains a network with Adam."""
    import mxnet as mx

    net, shape = LOOPS[name]()
    net.initialize(ctx=mx.gpu(0))
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 1e-3})
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    hook.watch([net], [trainer])

    def step() -> float:
        given, labels = mx.nd.ones((batch, *shape[1:]), ctx=mx.gpu(0)), mx.nd.zeros((batch,), ctx=mx.gpu(0))
        with mx.autograd.record():
            total = loss(net(given), labels).mean()
        total.backward()
        trainer.step(batch)
        return batch

    return step


def taken() -> int:
    """Return what the device has given out."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value - free.value


def main(name: str, path: Path, batch: int) -> None:
    """Record a loop, and print how well MXNet's pool reported what it holds."""
    ends = []
    with prepared("mxnet", Setting(DEVICE, 1, "fp32", 0)) as hook:
        step = step_of(name, hook, batch)
        mark = hook.mark_step
        hook.mark_step = lambda: (mark(), ends.append(taken()))  # type: ignore[method-assign]
        run = new_run(name, "mxnet", unit="samples", batch_size=batch, precision="fp32")
        with LoopProfiler(hook, run, PLAN, path=path) as profiler:
            while profiler.active:
                profiler.step(step())
    window = load(path).named("memory")[0]
    samples, strings = window.table("sample"), load(path).strings
    reserved = [int(each["value"]) for each in samples if strings[int(each["counter"])] == ALLOCATOR_RESERVED]
    sys.stdout.write(json.dumps({"reserved": reserved[1:], "taken": ends[: len(reserved) - 1]}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else BATCH)
