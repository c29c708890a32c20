"""The sizes of products of sparse data: each stored value is multiplied with a row or a column of the other array."""

import math
from collections.abc import Mapping

from tbdprof.hooks.on_mxnet.session.calls import Array, Invocation
from tbdprof.hooks.on_mxnet.session.graphs import Node
from tbdprof.hooks.on_mxnet.session.stored_values import COUNTED

Computed = Invocation | Node


def is_sparse(computed: Computed) -> bool:
    """Return whether an operator takes or makes a sparse array."""
    return any(array.stored is not None for array in (*computed.inputs, *computed.outputs))


def product(computed: Computed, dense: Mapping[str, int]) -> dict[str, int] | None:
    """Return the sizes of a product with a sparse array, or None if they do not follow from what is known.

    `dense` are the sizes that it has with dense arrays of the same shapes.

    m × k with v stored values by k × n is n products of v values; how MXNet computes it does not matter. An array
    that stores all of its values counts as a dense one. Of two arrays that store some, it is not known which of their
    values meet.
    """
    one, other = computed.inputs[:2]
    in_part = [array for array in (one, other) if _stores_some(array)]
    if computed.operator not in COUNTED or len(in_part) > 1:
        return None
    sizes = dict(dense)
    for array in in_part:
        values = None if array.stored is None else array.stored.values
        if values is None:
            return None
        sizes |= {"rows" if array is one else "columns": values, "inner": 1}
    return sizes


def has_dense_gradients(computed: Computed) -> bool:
    """Return whether the gradients of a product take as much as the product, each: no sparse operand wants one."""
    return not any(array.wanted and _stores_some(array) for array in computed.inputs[:2])


def _stores_some(array: Array) -> bool:
    """Return whether an array is not known to store all of its values."""
    return array.stored is not None and array.stored.values != math.prod(array.shape)
