"""An operator's arguments as torch's profiler reports them, without torch's own types, and arithmetic on shapes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from tbdprof.facts.records import Operation
from tbdprof.facts.work import Work

Shape = tuple[int, ...]

_PRECISIONS = {
    "float32": "fp32",
    "float64": "fp64",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor among an operator's arguments."""

    shape: Shape
    dtype: str  # torch's name without "torch."
    item_bytes: int

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """How many bytes its elements take."""
        return self.elements * self.item_bytes


# Tensors and lists of tensors; numbers, strings and lists of numbers; None where torch reported nothing.
Argument = object
Arguments = tuple[Argument, ...]
Rule = Callable[
    [Arguments], Work
]  # raises IndexError, TypeError or ValueError if the arguments are not those it expects


def tensor(argument: Argument) -> Operand:
    """Return an argument that must be a tensor; raise TypeError if it is not."""
    if not isinstance(argument, Operand):
        raise TypeError("a tensor is wanted here")
    return argument


def number(argument: Argument) -> int:
    """Return an argument that must be an integer; raise TypeError if it is not."""
    if not isinstance(argument, int):
        raise TypeError("an integer is wanted here")
    return argument


def numbers(argument: Argument) -> tuple[int, ...]:
    """Return an argument that must be a list of integers or flags; raise TypeError if it is not."""
    if not _are_numbers(argument):
        raise TypeError("a list of numbers is wanted here")
    return argument


def tensors(arguments: Sequence[Argument]) -> Iterator[Operand]:
    """Yield the tensors among arguments, including those inside lists."""
    for each in arguments:
        if isinstance(each, Operand):
            yield each
        elif isinstance(each, tuple):
            yield from (one for one in each if isinstance(one, Operand))


def total_bytes(arguments: Sequence[Argument]) -> int:
    """Return the bytes of all tensors among the arguments; count each argument once."""
    return sum(each.bytes for each in tensors(arguments))


def deciding(arguments: Sequence[Argument]) -> list[Operand]:
    """Return the tensors that decide the data type of the output: those with dimensions, if there are any.

    Torch reports a Python number as a tensor without dimensions, in double precision.
    """
    every = list(tensors(arguments))
    return [each for each in every if each.shape] or every


def precision(arguments: Sequence[Argument], *, tf32: bool = False) -> str:
    """Return the precision in which an operator computes: that of its first deciding floating-point tensor."""
    dtypes = [each.dtype for each in deciding(arguments)]
    found = next((_PRECISIONS[each] for each in dtypes if each in _PRECISIONS), dtypes[0] if dtypes else "fp32")
    return "tf32" if tf32 and found == "fp32" else found


def work_per_element(
    kind: Operation, name: str, elements: int, read: Arguments, written_bytes: int, *, backward: bool = False
) -> Work:
    """Return the `Work` of an operator that is counted per element, from what it reads and how much it writes."""
    return Work(
        kind,
        {"elements": elements},
        name,
        backward,
        moved_bytes=total_bytes(read) + written_bytes,
        precision=precision(read),
    )


def rule_for(rule: Rule, names: str) -> dict[str, Rule]:
    """Return one rule for several operators; `names` holds their names, separated by spaces."""
    return dict.fromkeys(names.split(), rule)


def broadcast(shapes: Sequence[Shape]) -> int:
    """Return how many elements result when tensors of these shapes are combined element by element."""
    sizes: list[int] = []
    for place in range(max(map(len, shapes), default=0)):
        here = {shape[-1 - place] for shape in shapes if len(shape) > place}
        sizes.append(max(here - {1}, default=1))
    return math.prod(sizes)


def window_places(
    sizes: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, *, ceil: bool = False
) -> Shape:
    """Return how many positions a sliding window takes along each dimension."""
    places = []
    for size, width, step, pad, gap in zip(sizes, kernel, stride, padding, dilation, strict=True):
        room = size + 2 * pad - gap * (width - 1) - 1
        count = (room + step - 1 if ceil else room) // step + 1
        # Leave out a window that begins in the padding beyond the end.
        places.append(count - (ceil and (count - 1) * step >= size + pad))
    return tuple(places)


def transposed_sizes(
    sizes: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, output_padding: Shape
) -> Shape:
    """Return the output sizes of a transposed convolution."""
    settings = zip(sizes, kernel, stride, padding, dilation, output_padding, strict=True)
    return tuple((size - 1) * s - 2 * p + d * (k - 1) + extra + 1 for size, k, s, p, d, extra in settings)


def for_each(values: tuple[int, ...], dimensions: int) -> Shape:
    """Return one value per dimension; a single value applies to all."""
    return values * dimensions if len(values) == 1 else values


def _are_numbers(argument: Argument) -> TypeGuard[tuple[int, ...]]:
    return isinstance(argument, tuple) and all(isinstance(each, int) for each in argument)
