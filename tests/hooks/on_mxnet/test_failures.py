"""Where tbdprof fails within MXNet's calls, the window is given up, and no bit of the training changes."""

import importlib.util
import re
from collections.abc import Callable

import pytest

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("mxnet is not installed", allow_module_level=True)

import numpy as np

vars(np).setdefault("bool", bool)  # MXNet reads it

import mxnet as mx  # noqa: E402
from mxnet import autograd, gluon  # noqa: E402

import tbdprof  # noqa: E402
from tbdprof.errors import UnavailableError  # noqa: E402
from tbdprof.hooks.on_mxnet.facade import MxnetHook  # noqa: E402
from tbdprof.hooks.on_mxnet.session import api_calls, engine  # noqa: E402
from tbdprof.hooks.on_mxnet.watch import by_hand, makers, phases, symbols  # noqa: E402

STEPS = 40
Ended = Callable[[], object]


def batch() -> mx.io.DataBatch:
    data = [mx.nd.array(np.random.rand(4, 5)), mx.nd.array(np.random.randint(0, 3, 4))]
    return mx.io.DataBatch(data[:1], data[1:])


def gluons(begin: Callable[..., Ended]) -> list[bytes]:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(8, in_units=5, activation="relu"), gluon.nn.Dense(3, in_units=8))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    ended = begin(net, trainer)
    for _ in range(STEPS):
        given = batch()
        with autograd.record():
            loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(given.data[0]) * 2, given.label[0])
        loss.backward()
        trainer.step(4)
        ended()
    return [each.data().asnumpy().tobytes() for each in net.collect_params().values()]


def a_module() -> mx.mod.Module:
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc1")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"), context=mx.cpu())
    module.bind([("data", (4, 5))], [("softmax_label", (4,))])
    module.init_params(mx.init.Xavier())
    return module


def modules(begin: Callable[..., Ended]) -> list[bytes]:
    module = a_module()
    module.init_optimizer(optimizer="adam")
    ended = begin(module)
    for _ in range(STEPS):
        module.forward(batch(), is_train=True)
        module.backward()
        module.update()
        ended()
    return [module.get_params()[0][name].asnumpy().tobytes() for name in ("fc1_weight", "fc1_bias")]


def by_hands(begin: Callable[..., Ended]) -> list[bytes]:
    (executor,) = a_module()._exec_group.execs
    ended = begin()
    for _ in range(STEPS):
        given = batch()
        executor.forward(is_train=True, data=given.data[0], softmax_label=given.label[0])
        executor.backward()
        for weight, gradient in zip(executor.arg_arrays, executor.grad_arrays, strict=True):
            if gradient is not None:
                weight -= 0.1 * gradient
        ended()
    return [array.asnumpy().tobytes() for array in executor.arg_arrays]


def trained(loop: Callable[..., list[bytes]], begin: Callable[..., Ended]) -> list[bytes]:
    mx.random.seed(3)
    np.random.seed(3)
    return loop(begin)


@pytest.fixture(autouse=True)
def _unprobed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure no peak: that takes the longest, and nothing here needs one."""

    def unknown(*arguments: object) -> None:
        raise UnavailableError("not measured in this test")

    monkeypatch.setattr(MxnetHook, "peaks", unknown)


def profiled(loop: Callable[..., list[bytes]]) -> tuple[list[bytes], tbdprof.Profiler]:
    made = list[tbdprof.Profiler]()

    def begin(*watched: object) -> Ended:
        made.append(tbdprof.profile(*watched, framework="mxnet", warmup=2, steps=3))
        made[0].start()
        return lambda: made[0].step(4)

    try:
        return trained(loop, begin), made[0]
    finally:
        made[0].stop()


PLANTED = [  # loops without a trainer first: one that is left of another loop is found
    (by_hands, by_hand, "_address", "memory"),
    (by_hands, by_hand.ByHand, "has_trainer", "memory"),
    (by_hands, symbols, "held", "memory"),
    (gluons, phases.Phases, "_take_turn", "memory"),
    (gluons, api_calls, "GraphCall", "kernels"),
    (gluons, api_calls.Calls, "_is_wanted", "kernels"),
    (modules, makers, "str", "memory"),
    (modules, engine, "numbered", "kernels"),
]


@pytest.mark.parametrize(("loop", "owner", "name", "key"), PLANTED, ids=lambda each: getattr(each, "__name__", each))
def test_a_planted_failure_changes_no_bit_of_the_training_and_is_reported(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    loop: Callable[..., list[bytes]],
    owner: object,
    name: str,
    key: str,
) -> None:
    alone = trained(loop, lambda *watched: lambda: None)

    def fails(*arguments: object, **options: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(owner, name, fails, raising=name != "str")
    weights, prof = profiled(loop)

    assert weights == alone
    assert re.search(r"KeyError: 'planted' .*please report this line$", prof.recording.missing[key])
    assert "Exception ignored" not in capsys.readouterr().err
