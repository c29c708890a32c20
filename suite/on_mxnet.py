"""The device, the data type and the switches of a suite model in MXNet."""

import mxnet as mx
from mxnet import gluon

from tbdprof.errors import UsageError
from tbdprof.suite.switches import HYBRIDIZE, setting
from tbdprof.suite.workload import Config, Spec

DTYPES = {"fp32": "float32", "fp64": "float64"}


def context_of(config: Config) -> mx.Context:
    """Return the requested device; "auto" means a GPU if there is one."""
    kind, _, number = config.device.partition(":")
    if kind == "cuda" or (kind == "auto" and mx.context.num_gpus()):
        return mx.gpu(int(number or 0))
    return mx.cpu()


def check_precision(spec: Spec, config: Config) -> None:
    """Raise UsageError if MXNet does not compute in the requested precision."""
    if config.precision not in DTYPES:
        raise UsageError(
            f"{spec.name} in MXNet runs in {' or '.join(DTYPES)}: {config.precision} needs --framework torch"
        )


def dtype_of(config: Config) -> str:
    """Return the data type of weights and activations."""
    return DTYPES[config.precision]


def hybridize(block: gluon.Block, config: Config) -> None:
    """Make a block's layers run as its switch says: one by one, as graphs, or as graphs with memory planned once."""
    how = setting(config, HYBRIDIZE)
    is_static = how == "static"
    block.hybridize(how != "none", static_alloc=is_static, static_shape=is_static)
