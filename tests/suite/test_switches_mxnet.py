"""`--hybridize` in MXNet does what it says, and leaves the training as it is."""

from functools import cache
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from tbdprof import suite
from tbdprof.suite import wgan
from tbdprof.suite.wgan import on_mxnet

HOW = ("none", "dynamic", "static")


@cache
def trained(how: str) -> tuple[Any, list[NDArray[Any]]]:
    """Return a narrow WGAN-GP after two steps, and its weights."""
    options = {"width": 8, "critic_steps": 1, "hybridize": how}
    config = suite.configure(wgan.SPEC, framework="mxnet", batch_size=2, precision="fp64", seed=1, options=options)
    workload = on_mxnet.build(wgan.SPEC, config)
    for _ in range(2):
        workload.step()
    mx.nd.waitall()
    weights = [each.data().asnumpy() for model in workload.model for each in model.collect_params().values()]
    return workload, weights


@pytest.mark.parametrize("how", HOW)
def test_a_block_runs_as_its_switch_says(how: str) -> None:
    workload, _ = trained(how)

    for block in (*workload.model, workload.penalty):
        flags = dict(block._flags)
        assert block._active == (how != "none")
        assert (block._cached_graph != ()) == (how != "none")
        assert (flags["static_alloc"], flags["static_shape"]) == ((how == "static"),) * 2


@pytest.mark.parametrize("how", ["none", "static"])
def test_the_training_stays_the_same_but_for_rounding(how: str) -> None:
    plain, switched = trained("dynamic")[1], trained(how)[1]

    apart = sum(float(np.square(one - other).sum()) for one, other in zip(plain, switched, strict=True))
    assert apart <= 1e-18 * sum(float(np.square(one).sum()) for one in plain)
