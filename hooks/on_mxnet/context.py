"""What MXNet's libraries take of a device when something small is computed: run by a process of its own."""

import sys

from tbdprof.collect.gpu import context
from tbdprof.hooks import Setting, load
from tbdprof.hooks.on_mxnet.importing import import_mxnet


def main(index: int) -> None:
    """Print, as JSON, what this process takes of a device by computing a product and a convolution, both ways."""
    load("mxnet").set_environment(Setting(f"cuda:{index}"))
    import_mxnet()
    sys.stdout.write(context.around(index, lambda: compute(index)) + "\n")


def compute(index: int) -> int:
    """Compute a matrix product and a convolution with their gradients; return what MXNet's pool holds then."""
    import mxnet as mx

    from tbdprof.hooks.on_mxnet.memory import device_memory
    from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
    from tbdprof.hooks.on_mxnet.session import layout

    allocator = Allocator()
    allocator.install()
    device = mx.gpu(index)
    matrix, images = mx.nd.ones((64, 64), ctx=device), mx.nd.ones((2, 4, 16, 16), ctx=device)
    kernels, bias = mx.nd.ones((8, 4, 3, 3), ctx=device), mx.nd.zeros(8, ctx=device)
    for array in (matrix, kernels):
        array.attach_grad()
    with mx.autograd.record():
        mapped = mx.nd.Convolution(images, kernels, bias, kernel=(3, 3), num_filter=8)
        total = mx.nd.dot(matrix, matrix).sum() + mapped.sum()
    total.backward()
    mx.nd.waitall()
    return device_memory.held_bytes(allocator, layout.device_number(layout.GPU, index))
