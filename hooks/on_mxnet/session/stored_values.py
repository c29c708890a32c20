"""Ask MXNet's engine how many values a sparse array stores. Nothing waits for the answer.

The number follows from no shape: it is decided when an operator writes the array. So the engine is given a function
that reads it. The engine runs the function after everything that was requested before to write the array, and before
everything that is requested later to write it. The function changes nothing.
"""

import ctypes
import functools
import itertools
import math

import mxnet as mx

from tbdprof.errors import UnavailableError
from tbdprof.hooks.interrupts import guarded
from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.on_mxnet.session.calls import Stored
from tbdprof.hooks.waiting import waits

NAME = "tbdprof: stored values"  # of the requests
COUNTED = frozenset({"dot", "FullyConnected"})  # products whose FLOPs follow from it

_KIND_OFFSET, _SPARSE = 80, (1, 2)  # NDArray::storage_type_: row_sparse, csr
_SHAPE_OFFSET, _MOST_AXES = 48, 32  # NDArray::Chunk::storage_shape, behind Chunk::var

_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)
_ON_CPU = (ctypes.c_int32 * 2)(layout.CPU, 0)  # Context: where the function runs, wherever the array lies
# What was asked and is not answered yet, by number: the place for the answer, and a reference to the array.
_asked: dict[int, tuple[Stored, ctypes.c_void_p]] = {}
_numbers = itertools.count(1)


def is_sparse(array: int) -> bool:
    """Return whether an array stores only some of its values, given the array's handle."""
    return ctypes.c_int32.from_address(array + _KIND_OFFSET).value in _SPARSE


def prove() -> None:
    """Raise UnavailableError if `is_sparse` reads something else; do what `ask` needs once, before it is called."""
    dense, by_values = mx.nd.ones((7, 5)), mx.nd.sparse.zeros("csr", (7, 5))
    if is_sparse(dense.handle.value) or not is_sparse(by_values.handle.value):
        raise UnavailableError(layout.OTHER_LAYOUT)
    _is_known()


@functools.cache
def _is_known() -> bool:
    """Return whether chunks are laid out as this module reads them; if not, nothing is asked."""
    shape = (7, 5)
    by_rows = mx.nd.sparse.row_sparse_array((mx.nd.ones((2, 5)), [0, 3]), shape=shape)
    by_values = mx.nd.sparse.csr_matrix(([1.0, 2.0, 3.0], [0, 2, 4], [0, 1, 3, 3, 3, 3, 3, 3]), shape=shape)
    return [_stored(each.handle.value) for each in (by_rows, by_values)] == [10, 3]


def ask(array: int, stored: Stored) -> None:
    """Have the engine fill in how many values an array stores, given the array's handle."""
    library, kept = layout.library(), ctypes.c_void_p()
    variable = ctypes.c_size_t(layout.variable(array) if _is_known() else 0)
    if not variable.value or library.MXNDArrayDetach(ctypes.c_void_p(array), ctypes.byref(kept)):
        return
    number = next(_numbers)
    _asked[number] = stored, kept
    how = ctypes.byref(_ON_CPU), ctypes.byref(variable), 1, None, 0, None, 0, NAME.encode()
    if library.MXEnginePushSync(_ANSWER, ctypes.c_size_t(number), None, *how):
        library.MXNDArrayFree(_asked.pop(number)[1])


@guarded
def _answer(_context: int, number: int) -> None:
    _read(number)


@waits
def _read(number: int) -> None:
    """Read what was asked; a thread of the engine runs this."""
    stored, kept = _asked.pop(number)
    try:
        stored.values = _stored(kept.value or 0)
    finally:
        layout.library().MXNDArrayFree(kept)


def _stored(array: int) -> int | None:
    """Return how many values an array stores now, given its handle, or None if that is not decided."""
    chunk = ctypes.c_size_t.from_address(array).value
    place = chunk + layout.variable_offset() + _SHAPE_OFFSET
    if not chunk or not 0 < ctypes.c_int32.from_address(place).value <= _MOST_AXES:
        return None
    return math.prod(layout.shape_at(place))


# The engine may call it at any time.
_ANSWER = _Function(_answer)
