"""Which of MXNet's parameters are weights, and which are parameters only by their class."""

import numpy as np
import pytest

vars(np).setdefault("bool", bool)  # numpy 1.24 took the name away, and MXNet 1.9 reads it

from mxnet.gluon import Constant, Parameter  # noqa: E402

from tbdprof.hooks.on_mxnet.watch import held  # noqa: E402


@pytest.mark.parametrize(
    ("parameter", "is_buffer"),
    [
        (Parameter("weight", shape=(2, 3)), False),
        (Parameter("frozen", grad_req="null", shape=(2, 3)), False),
        (Parameter("running_mean", shape=(2,), differentiable=False), True),
        (Constant("positions", [[1.0, 2.0]]), True),
    ],
)
def test_running_statistics_and_constants_are_buffers(parameter: Parameter, is_buffer: bool) -> None:
    assert held.is_buffer(parameter) is is_buffer
