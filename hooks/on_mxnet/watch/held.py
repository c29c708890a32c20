"""Weights and buffers with their arrays, whichever of MXNet's two APIs they belong to: Gluon or Module."""

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import mxnet as mx
from mxnet.gluon import Block, Constant, Parameter


class Held(NamedTuple):
    """A weight or a buffer: its arrays and its gradients, one for each device."""

    key: Hashable  # the same whoever asks: the model or the trainer
    name: str  # as MXNet gives it
    arrays: Sequence[mx.nd.NDArray]
    gradients: Sequence[mx.nd.NDArray]
    is_trained: bool
    is_buffer: bool


def of_parameter(parameter: Parameter) -> Held:
    """Return a Gluon parameter with its arrays; none before its shape is known.

    The arrays are not asked for by `list_data`, which refuses a weight that only the store has as a whole. Hundreds of
    parameters are read several times a step, so nothing is copied.
    """
    return Held(
        id(parameter),
        parameter.name,
        parameter._data or (),  # noqa: SLF001
        parameter._grad or (),  # noqa: SLF001
        parameter.grad_req != "null",
        is_buffer(parameter),
    )


def loose(everything: Sequence[Parameter | mx.nd.NDArray]) -> list[Held]:
    """Return the arrays that have a gradient (`attach_grad`), or none if Gluon's parameters may hold some."""
    if any(isinstance(each, Parameter) for each in everything):
        return []
    trained = {each.handle.value: (each, each.grad) for each in everything if each.handle and each.grad is not None}
    return [
        Held(handle, f"parameter{number}", [array], [gradient], is_trained=True, is_buffer=False)
        for number, (handle, (array, gradient)) in enumerate(trained.items())
    ]


def is_buffer(parameter: Parameter) -> bool:
    """Return whether a `Parameter` is a buffer: running statistics and constants are."""
    return isinstance(parameter, Constant) or not parameter._differentiable  # noqa: SLF001


def parts(block: Block) -> Iterator[Block]:
    """Yield a block and every block inside it."""
    yield block
    for child in block._children.values():  # noqa: SLF001 - there is no public walk
        yield from parts(child)
