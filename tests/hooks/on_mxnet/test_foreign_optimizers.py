"""Optimizers of other packages with a class name of MXNet's."""

from typing import Any

import numpy as np
import pytest

vars(np).setdefault("bool", bool)  # numpy 1.24 took the name away, and MXNet 1.9 reads it

mx = pytest.importorskip("mxnet")

from tbdprof.hooks.on_mxnet import facts  # noqa: E402
from tbdprof.hooks.on_mxnet.watch import owners  # noqa: E402

PACKAGE = __name__.partition(".")[0]


class SGD(mx.optimizer.Optimizer):  # type: ignore[misc, name-defined]
    """Has no momentum, unlike MXNet's."""

    def create_state(self, index: object, weight: Any) -> None:
        return None

    def update(self, index: object, weight: Any, grad: Any, state: object) -> None:
        weight[:] -= self.learning_rate * grad


@pytest.mark.parametrize(
    ("optimizer", "kind"),
    [(SGD(), f"{PACKAGE}.sgd"), (mx.optimizer.SGD(momentum=0.9), "sgd"), (mx.optimizer.NAG(), "nag")],
)
def test_an_optimizer_is_mxnets_by_its_class_and_not_by_its_name(optimizer: Any, kind: str) -> None:
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    watched = owners.Watched()
    watched.add_model(net)
    watched.add_trainer(mx.gluon.Trainer(net.collect_params(), optimizer))

    assert [each.kind for each in facts.optimizer_list(watched)] == [kind]
