"""Where a model of the suite lies in MXNet, and in which data type it computes."""

import mxnet as mx

from tbdprof.errors import UsageError
from tbdprof.suite.workload import Config, Spec

DTYPES = {"fp32": "float32", "fp64": "float64"}


def context_of(config: Config) -> mx.Context:
    """Return the device that was asked for; "auto" is a GPU where there is one."""
    kind, _, number = config.device.partition(":")
    if kind == "cuda" or (kind == "auto" and mx.context.num_gpus()):
        return mx.gpu(int(number or 0))
    return mx.cpu()


def check_precision(spec: Spec, config: Config) -> None:
    """Raise UsageError where MXNet does not compute in the precision that was asked for."""
    if config.precision not in DTYPES:
        raise UsageError(
            f"{spec.name} in MXNet runs in {' or '.join(DTYPES)}: {config.precision} needs --framework torch"
        )


def dtype_of(config: Config) -> str:
    """Return the data type of weights and maps."""
    return DTYPES[config.precision]
