"""Where a model of the suite lies in MXNet."""

import mxnet as mx

from tbdprof.suite.workload import Config


def context_of(config: Config) -> mx.Context:
    """Return the device that was asked for; "auto" is a GPU where there is one."""
    kind, _, number = config.device.partition(":")
    if kind == "cuda" or (kind == "auto" and mx.context.num_gpus()):
        return mx.gpu(int(number or 0))
    return mx.cpu()
