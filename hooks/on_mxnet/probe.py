"""Peak rates of this CPU in MXNet, measured by a process of its own.

MXNet keeps part of a convolution's workspace (megabytes) for the next one, and its allocator's peak never goes down. In
the watched process the probe would show in every memory figure.
"""

from collections.abc import Callable, Iterator, Sequence

import mxnet as mx

from tbdprof.facts.records import Peaks
from tbdprof.facts.units import bytes_text
from tbdprof.hooks import probing
from tbdprof.hooks.on_mxnet import facts
from tbdprof.hooks.probing import Candidate, Convolution

_DTYPES = {"fp32": "float32", "fp64": "float64"}
_REFUSED = "not measured: MXNet has no probe for this precision on a CPU"
_HALF = 0.5


def measure(precisions: Sequence[str]) -> Peaks:
    """Return the best rates of a fixed set of operators with this process's thread count; once quiet, measure no more.

    Raise UnavailableError if the other process does not start or fails.
    """
    return _measured(tuple(precisions), facts.threads())


@probing.UntilQuiet
def _measured(precisions: tuple[str, ...], threads: int) -> Peaks:
    mx.nd.waitall()
    return probing.apart("mxnet", precisions, threads)


def here(precisions: Sequence[str], threads: int) -> Peaks:
    """Return the peaks, measured in this process."""
    products = {
        precision: list(_products(_DTYPES[precision], threads)) for precision in precisions if precision in _DTYPES
    }
    refused = {precision: _REFUSED for precision in precisions if precision not in _DTYPES}
    return probing.measure(products, list(_streams()), refused, threads)


def _products(dtype: str, threads: int) -> Iterator[Candidate]:
    flops, size, rows = probing.product_flops(threads), probing.product_size(threads), probing.rows(threads)

    def product() -> Callable[[], object]:
        left, right = _constant(dtype, rows, probing.WIDTH), _constant(dtype, probing.WIDTH, probing.WIDTH)
        return lambda: mx.nd.dot(left, right).wait_to_read()

    def dense() -> Callable[[], object]:
        rows_in, weight = _constant(dtype, rows, probing.WIDTH), _constant(dtype, probing.WIDTH, probing.WIDTH)
        arguments = {"no_bias": True, "num_hidden": probing.WIDTH}
        return lambda: mx.nd.FullyConnected(rows_in, weight, **arguments).wait_to_read()

    yield Candidate(f"matrix product {size}", flops, product)
    yield Candidate(f"dense layer {size}", flops, dense)
    images = probing.images(threads)
    for each in probing.CONVOLUTIONS:
        yield Candidate(each.name(images), each.flops(images), _convolution(each, images, dtype))


def _convolution(convolution: Convolution, images: int, dtype: str) -> Callable[[], Callable[[], object]]:
    kernel, side = convolution.kernel, convolution.side
    arguments = {
        "kernel": (kernel, kernel),
        "pad": (kernel // 2, kernel // 2),
        "num_filter": convolution.outputs,
        "no_bias": True,
    }

    def prepare() -> Callable[[], object]:
        maps = _constant(dtype, images, convolution.inputs, side, side)
        weight = _constant(dtype, convolution.outputs, convolution.inputs, kernel, kernel)
        return lambda: mx.nd.Convolution(maps, weight, **arguments).wait_to_read()

    return prepare


def _streams() -> Iterator[Candidate]:
    rows = probing.ARRAY_BYTES // (4 * probing.WIDTH)

    def copy() -> Callable[[], object]:
        source, target = _constant("float32", rows, probing.WIDTH), _constant("float32", rows, probing.WIDTH)
        return lambda: source.copyto(target).wait_to_read()

    def rectify() -> Callable[[], object]:
        array = _constant("float32", rows, probing.WIDTH)
        return lambda: mx.nd.Activation(array, act_type="relu", out=array).wait_to_read()

    def read() -> Callable[[], object]:
        weight, row = _constant("float32", rows, probing.WIDTH), _constant("float32", 1, probing.WIDTH)
        return lambda: mx.nd.FullyConnected(row, weight, no_bias=True, num_hidden=rows).wait_to_read()

    size = bytes_text(probing.ARRAY_BYTES)
    yield Candidate(f"copy of {size}", 2 * probing.ARRAY_BYTES, copy)
    yield Candidate(f"relu of {size} in place", 2 * probing.ARRAY_BYTES, rectify)
    yield Candidate(f"dense layer of one row that reads {size}", probing.ARRAY_BYTES, read)


def _constant(dtype: str, *shape: int) -> mx.nd.NDArray:
    return mx.nd.full(shape, _HALF, dtype=dtype, ctx=mx.cpu())
