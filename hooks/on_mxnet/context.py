"""Measure how much device memory MXNet's libraries take for a small computation; runs in a process of its own."""

import sys

from tbdprof.collect.gpu import context
from tbdprof.hooks import Setting, load
from tbdprof.hooks.on_mxnet.importing import import_mxnet


def main(index: int) -> None:
    """Print as JSON the device memory this process takes for a matmul and a convolution, forward and backward."""
    load("mxnet").set_environment(Setting(f"cuda:{index}"))
    import_mxnet()
    sys.stdout.write(context.around(index, lambda: compute(index)) + "\n")


def compute(index: int) -> int:
    """Compute a matmul and a convolution with their gradients; return the bytes that MXNet's pool then holds."""
    import mxnet as mx

    from tbdprof.hooks.on_mxnet.memory import device_memory
    from tbdprof.hooks.on_mxnet.memory.choice import new_allocator
    from tbdprof.hooks.on_mxnet.session import layout

    allocator = new_allocator()
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
