"""The tensors among operators' arguments, as torch's profiler reports them."""

import math
from collections.abc import Iterator, Sequence

from torch._C._profiler import _TensorMetadata

from tbdprof.hooks.on_torch.devices import device_text
from tbdprof.hooks.on_torch.session.events import SeenTensor


def metadata(values: Sequence[object]) -> Iterator[_TensorMetadata]:
    """Yield the metadata of each tensor, including tensors inside lists."""
    for value in values:
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, _TensorMetadata):
                yield each


def shapes_of(value: object) -> object:
    """Return a tensor's shape, the shapes of a list of tensors, or None for anything else."""
    if isinstance(value, _TensorMetadata):
        return value.sizes
    return [each.sizes for each in value] if isinstance(value, list) else None


def tensors_of(values: Sequence[object]) -> Iterator[SeenTensor]:
    """Yield those tensors among the arguments that have memory."""
    for each in metadata(values):
        if each.storage_data_ptr:
            elements = math.prod(each.sizes)
            yield SeenTensor(
                device=device_text(each.device),
                address=each.storage_data_ptr,
                bytes=elements * each.dtype.itemsize,
                shape=tuple(each.sizes),
            )
