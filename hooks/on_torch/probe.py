"""Peak rates of this CPU in torch."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch.nn import functional

from tbdprof.facts.records import Peaks
from tbdprof.facts.units import bytes_text
from tbdprof.hooks import probing
from tbdprof.hooks.probing import Candidate, Convolution

_DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
_REFUSED = "not measured: there is no probe for this precision on a CPU"
_LAYOUTS = {"": torch.contiguous_format, ", channels last": torch.channels_last}
_HALF = 0.5


def measure(precisions: Sequence[str]) -> Peaks:
    """Return the best rates of a fixed set of operators with torch's current threads; once quiet, measure no more."""
    return _measured(tuple(precisions), torch.get_num_threads())


def measure_apart(precisions: Sequence[str]) -> Peaks:
    """Return the same, measured in a process of its own if torch has several threads; for a forked process.

    A forked process lacks the threads of its parent: an operator that waits for them never returns (GNU's OpenMP).
    Raise UnavailableError if the other process does not start or fails.
    """
    threads = torch.get_num_threads()
    return measure(precisions) if threads == 1 else _measured_apart(tuple(precisions), threads)


@probing.UntilQuiet
def _measured_apart(precisions: tuple[str, ...], threads: int) -> Peaks:
    return probing.apart("torch", precisions, threads)


def here(precisions: Sequence[str], threads: int) -> Peaks:
    """Return the peaks, measured in this process with a number of threads."""
    torch.set_num_threads(threads)
    return measure(precisions)


@probing.UntilQuiet
def _measured(precisions: tuple[str, ...], threads: int) -> Peaks:
    known = [precision for precision in precisions if precision in _DTYPES]
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        return probing.measure(
            {precision: list(_products(_DTYPES[precision], threads)) for precision in known},
            list(_streams()),
            {precision: _REFUSED for precision in precisions if precision not in _DTYPES},
            threads,
        )


def _products(dtype: torch.dtype, threads: int) -> Iterator[Candidate]:
    flops, size = probing.product_flops(threads), probing.product_size(threads)
    for name, operator in (("matrix product", torch.mm), ("dense layer", functional.linear)):
        yield Candidate(f"{name} {size}", flops, _product(operator, dtype, probing.rows(threads)))
    images = probing.images(threads)
    for convolution in probing.CONVOLUTIONS:
        for suffix, layout in _LAYOUTS.items():
            name, run = convolution.name(images) + suffix, _convolution(convolution, images, dtype, layout)
            yield Candidate(name, convolution.flops(images), run)


def _product(
    operator: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], dtype: torch.dtype, rows: int
) -> Callable[[], Callable[[], object]]:
    def prepare() -> Callable[[], object]:
        left, right = _constant(dtype, rows, probing.WIDTH), _constant(dtype, probing.WIDTH, probing.WIDTH)
        return lambda: operator(left, right)

    return prepare


def _convolution(
    convolution: Convolution, images: int, dtype: torch.dtype, layout: torch.memory_format
) -> Callable[[], Callable[[], object]]:
    kernel, side = convolution.kernel, convolution.side

    def prepare() -> Callable[[], object]:
        maps = _constant(dtype, images, convolution.inputs, side, side).to(memory_format=layout)
        weight = _constant(dtype, convolution.outputs, convolution.inputs, kernel, kernel).to(memory_format=layout)
        return lambda: functional.conv2d(maps, weight, padding=kernel // 2)

    return prepare


def _streams() -> Iterator[Candidate]:
    def constant() -> torch.Tensor:
        return _constant(torch.float32, probing.ARRAY_BYTES // 4)

    def copy() -> Callable[[], object]:
        source, target = constant(), constant()
        return lambda: target.copy_(source)

    def add_number() -> Callable[[], object]:
        array = constant()
        return lambda: array.add_(1.0)

    def add_array() -> Callable[[], object]:
        array, other = constant(), constant()
        return lambda: array.add_(other)

    size = bytes_text(probing.ARRAY_BYTES)
    yield Candidate(f"copy of {size}", 2 * probing.ARRAY_BYTES, copy)
    yield Candidate(f"number added to {size} in place", 2 * probing.ARRAY_BYTES, add_number)
    yield Candidate(f"{size} added to {size} in place", 3 * probing.ARRAY_BYTES, add_array)


def _constant(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.full(shape, _HALF, dtype=dtype, device="cpu")
