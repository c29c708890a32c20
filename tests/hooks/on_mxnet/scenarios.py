"""Trainings recorded by one hook in a process of its own, where MXNet has allocated nothing before.

    python scenarios.py RESULT

writes a pickled `Result`: a `Window` a training, and what was seen before and after.
"""

import gc
import json
import pickle
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tbdprof.facts.records import Strings
from tbdprof.facts.rows import Table
from tbdprof.hooks import Facts, Setting
from tbdprof.hooks.on_mxnet import hook
from tbdprof.hooks.on_mxnet.facade import MxnetHook

STEPS = 3


@dataclass
class Window:
    tables: dict[str, Table]
    marks: list[int]
    missing: dict[str, str]
    strings: Strings
    facts: Facts
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Result:
    windows: dict[str, Window]
    independent_total: str | None
    peak_bytes: int | None
    before: dict[str, int]
    after: dict[str, int]


def net(**hybrid: bool) -> Any:
    from mxnet.gluon import nn

    model = nn.HybridSequential()
    model.add(
        nn.Conv2D(8, 3, in_channels=3),
        nn.BatchNorm(in_channels=8),
        nn.Activation("relu"),
        nn.Conv2D(8, 3, in_channels=8),
        nn.Dense(4, in_units=8 * 12 * 12),
    )
    model.initialize()
    if hybrid:
        model.hybridize(**hybrid)
    return model


def training(model: Any, optimizer: str = "sgd", **settings: float) -> tuple[Any, Callable[[], None]]:
    import mxnet as mx
    from mxnet import autograd, gluon

    trainer = gluon.Trainer(model.collect_params(), optimizer, {"learning_rate": 0.1, **settings})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()

    def step() -> None:
        images, labels = mx.nd.random.uniform(shape=(2, 3, 16, 16)), mx.nd.array([0, 1])
        with autograd.record():
            value = loss(model(images), labels)
        value.backward()
        trainer.step(2)

    return trainer, step


def record(mxnet_hook: MxnetHook, step: Callable[[], None], warmup: int = 2) -> Window:
    for _ in range(warmup):
        step()
    mxnet_hook.start("memory")
    for _ in range(STEPS):
        step()
        mxnet_hook.mark_step()
    mxnet_hook.stop()
    strings = Strings()
    drained = mxnet_hook.drain(strings)
    return Window(dict(drained.tables), list(drained.marks), dict(drained.missing), strings, mxnet_hook.facts())


def sgd(mxnet_hook: MxnetHook) -> Window:
    model = net(active=True)
    trainer, step = training(model, momentum=0.9)
    mxnet_hook.watch([model], [trainer])
    return record(mxnet_hook, step)


def adam(mxnet_hook: MxnetHook) -> Window:
    model = net()
    trainer, step = training(model, "adam")
    mxnet_hook.watch([model], [trainer])
    return record(mxnet_hook, step)


def static(mxnet_hook: MxnetHook) -> Window:
    model = net(static_alloc=True)
    trainer, step = training(model, momentum=0.9)
    mxnet_hook.watch([model], [trainer])
    return record(mxnet_hook, step)


def static_shape(mxnet_hook: MxnetHook) -> Window:
    model = net(static_alloc=True, static_shape=True)
    trainer, step = training(model, momentum=0.9)
    mxnet_hook.watch([model], [trainer])
    return record(mxnet_hook, step)


def static_inside(mxnet_hook: MxnetHook) -> Window:
    """The planner lays its pools out within the window."""
    model = net(static_alloc=True)
    trainer, step = training(model, momentum=0.9)
    mxnet_hook.watch([model], [trainer])
    return record(mxnet_hook, step, warmup=0)


def gan(mxnet_hook: MxnetHook) -> Window:
    import mxnet as mx
    from mxnet import autograd, gluon
    from mxnet.gluon import nn

    class Generator(nn.HybridSequential): ...

    class Critic(nn.HybridSequential): ...

    generator, critic = Generator(), Critic()
    generator.add(nn.Dense(16, in_units=4, activation="relu"), nn.Dense(32, in_units=16))
    critic.add(nn.Dense(16, in_units=32, activation="relu"), nn.Dense(1, in_units=16))
    for model in (generator, critic):
        model.initialize()
        model.hybridize()
    trainers = [gluon.Trainer(m.collect_params(), "adam") for m in (generator, critic)]

    def step() -> None:
        noise, real = mx.nd.random.normal(shape=(8, 4)), mx.nd.random.normal(shape=(8, 32))
        with autograd.record():
            value = critic(generator(noise).detach()).mean() - critic(real).mean()
        value.backward()
        trainers[1].step(1)
        with autograd.record():
            value = -critic(generator(noise)).mean()
        value.backward()
        trainers[0].step(1)

    mxnet_hook.watch([generator, critic], trainers)
    return record(mxnet_hook, step)


def planted(mxnet_hook: MxnetHook) -> Window:
    """Arrays of known sizes are made in each part of a step, and those of the update and outside are kept."""
    import mxnet as mx
    from mxnet import autograd, gluon

    class Planting(gluon.nn.HybridSequential):
        def forward(self, images: Any) -> Any:
            self.forward_map = mx.nd.ones((1001,))
            return super().forward(images)

    class PlantingTrainer(gluon.Trainer):
        def _update(self, ignore_stale_grad: bool = False) -> None:
            self.kept = mx.nd.ones((1003,))
            super()._update(ignore_stale_grad)

    model = Planting()
    model.add(gluon.nn.Dense(4, in_units=3))
    model.initialize()
    trainer = PlantingTrainer(model.collect_params(), "sgd")
    batch = mx.nd.ones((2, 3))

    def step() -> None:
        with autograd.record():
            value = model(batch)
        autograd.backward([value], [mx.nd.ones((2, 4))])
        trainer.step(2)
        step.outside = mx.nd.ones((1005,))  # type: ignore[attr-defined]

    mxnet_hook.watch([model], [trainer], [batch])
    return record(mxnet_hook, step)


def found(mxnet_hook: MxnetHook) -> Window:
    """Models and trainers are found as they are used."""
    from mxnet.gluon import Block

    original = Block.__call__
    mxnet_hook.watch([], [])
    finding = Block.__call__ is not original
    updated: list[object] = []
    mxnet_hook.on_update(updated.append)
    model = net(active=True)
    trainer, step = training(model)
    window = record(mxnet_hook, step)
    window.extra = {
        "finding": finding,
        "resting": Block.__call__ is original,
        "updates": [each is trainer for each in updated],
    }
    return window


def failing(mxnet_hook: MxnetHook) -> Window:
    """The script's own error passes through every replaced function as it is."""
    import mxnet as mx
    from mxnet import autograd
    from mxnet.gluon import nn

    class Broken(nn.Block):
        def forward(self, images: Any) -> Any:
            raise LookupError("mine")

    model, seen = Broken(), []
    mxnet_hook.start("memory")
    try:
        with autograd.record():
            model(mx.nd.ones((2, 2)))
    except LookupError as error:
        seen.append(str(error))
    mxnet_hook.mark_step()
    mxnet_hook.stop()
    strings = Strings()
    drained = mxnet_hook.drain(strings)
    return Window(dict(drained.tables), list(drained.marks), {}, strings, mxnet_hook.facts(), {"seen": seen})


def dumped(mxnet_hook: MxnetHook) -> Window:
    """MXNet's profiler writes down what it counts in the same window; last, for it dumps properly but once."""
    import mxnet as mx

    model = net(active=True)
    trainer, step = training(model, momentum=0.9)
    mxnet_hook.watch([model], [trainer])
    step()
    mx.nd.waitall()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "profile.json")
        mx.profiler.set_config(
            profile_memory=True,
            profile_symbolic=False,
            profile_imperative=False,
            profile_api=False,
            continuous_dump=False,
            filename=str(path),
        )
        mx.profiler.resume()
        window = record(mxnet_hook, step, warmup=0)
        mx.profiler.pause()
        mx.profiler.dump()
        events = json.loads(path.read_text())["traceEvents"]
    name = "Memory: cpu/0"
    window.extra = {"counted": [e["args"][name] for e in events if e["ph"] == "C" and e["name"] == name]}
    return window


def identities() -> dict[str, int]:
    """What a hook replaces in MXNet, by identity or content."""
    from mxnet import autograd
    from mxnet.gluon import Block, HybridBlock, Trainer

    from tbdprof.hooks.on_mxnet.memory import jump_slots
    from tbdprof.hooks.on_mxnet.session import layout

    return {
        "call": id(Block.__call__),
        "build": id(HybridBlock._build_cache),
        "enter": id(autograd._RecordingStateScope.__enter__),
        "exit": id(autograd._RecordingStateScope.__exit__),
        "step": id(Trainer.step),
        "update": id(Trainer.update),
        "backward": id(layout.library().MXAutogradBackwardEx),
        "running": layout.profiler_state()[0],
        **{slot.symbol: slot.read() for slot in jump_slots.find(layout.library(), (layout.ON_ALLOC, layout.ON_FREE))},
    }


def main(path: Path) -> None:
    mxnet_hook = hook()
    assert "mxnet" not in sys.modules
    mxnet_hook.set_environment(Setting())
    before = identities()
    mxnet_hook.prepare(Setting(threads=1, seed=0))
    trainings = (sgd, adam, static, static_shape, static_inside, gan, planted, failing, found, dumped)
    windows = {}
    for each in trainings:
        windows[each.__name__] = each(mxnet_hook)
        gc.collect()  # a trainer and its parameters hold each other
    total, peak = mxnet_hook.independent_total, mxnet_hook.whole_run_peak_bytes
    mxnet_hook.close()
    path.write_bytes(pickle.dumps(Result(windows, total, peak, before, identities())))


if __name__ == "__main__":
    # Pickled under the name by which the tests import it.
    sys.path.insert(0, str(Path(__file__).parent))
    import scenarios

    scenarios.main(Path(sys.argv[1]))
