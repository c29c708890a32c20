"""An operator as the FLOP counts see it: its type, its attributes, its inputs and its outputs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_ITEM_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "half": 2}
_ITEM_BYTES |= {"int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16}
_PRECISIONS = {"float32": "fp32", "float64": "fp64", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}


@dataclass(frozen=True, slots=True)
class Array:
    """A tensor; `shape` is None if it is not fully known."""

    shape: tuple[int, ...] | None
    dtype: str = "float32"
    is_variable: bool = False  # the value of a variable, just read

    @property
    def elements(self) -> int:
        """Return how many elements there are; raise LookupError if the shape is not known."""
        if self.shape is None:
            raise LookupError("shape")
        return math.prod(self.shape)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Return the shape; raise LookupError if it is not known."""
        if self.shape is None:
            raise LookupError("shape")
        return self.shape

    @property
    def bytes(self) -> int:
        """Return its size in bytes."""
        return self.elements * _ITEM_BYTES.get(self.dtype, 4)


@dataclass(frozen=True, slots=True)
class Computed:
    """An operator that ran, with its type in the graph."""

    type: str
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    is_backward: bool = False
    has_bias: bool = False  # it adds a bias, or computes the gradient of one
    in_tf32: bool = False  # if it is a float32 matmul or convolution

    @property
    def result(self) -> Array:
        """Return its first output; raise LookupError if it has none."""
        return self.outputs[0]

    @property
    def moved_bytes(self) -> int | None:
        """Return the bytes of all inputs and outputs, or None if a shape is not known."""
        try:
            return sum(array.bytes for array in (*self.inputs, *self.outputs))
        except LookupError:
            return None

    @property
    def precision(self) -> str:
        """Return the precision of its arithmetic: that of the first floating-point array, outputs before inputs."""
        arrays = (*self.outputs, *self.inputs)
        found = next((_PRECISIONS[array.dtype] for array in arrays if array.dtype in _PRECISIONS), None)
        return found or (arrays[0].dtype if arrays else "fp32")
