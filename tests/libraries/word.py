"""A program's word on itself: sizes from the framework's own counts, FLOPs by hand, and a digest of all its numbers.

Nothing of tbdprof is imported here. A program writes its word into the file named by its first argument.
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ITEM = 4  # bytes of a float32
STEPS = 20  # every window of `--warmup 2 --steps 2`, and some more


def dense(rows: int, inner: int, columns: int, *, products: int = 3) -> int:
    """Return the FLOPs of a dense layer: the forward product, the weight's gradient, the input's gradient."""
    return products * 2 * rows * inner * columns


def write(
    *,
    weights: int,
    gradients: int,
    state: int,
    flops: int,
    numbers: Mapping[str, np.ndarray],
    rank: int = 0,
    **more: Any,
) -> None:
    """Write the bytes of weights, gradients and optimizer state, the FLOPs of a step, and the digest of the numbers."""
    sums = hashlib.sha256()
    for name in sorted(numbers):
        sums.update(f"{name}:{numbers[name].shape}:".encode())
        sums.update(np.ascontiguousarray(numbers[name]).tobytes())
    said = {"weights": weights, "gradients": gradients, "state": state, "flops": flops, "digest": sums.hexdigest()}
    place = Path(sys.argv[1])
    place.with_name(f"{place.name}.{rank}").write_text(json.dumps(said | more))


def write_torch(model: Any, optimizer: Any, *, flops: int, rank: int = 0, **more: Any) -> None:
    """Write the word of a plain torch model and its optimizer; shards count with what this process holds."""
    parameters = {name: local(each) for name, each in model.named_parameters()}
    trained = [local(each) for each in model.parameters() if each.requires_grad]
    state = {
        f"{name}/{key}": local(value)
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if hasattr(value, "numel")
    }
    write(
        weights=bytes_of(parameters.values()),
        gradients=bytes_of(trained),
        state=bytes_of(state.values()),
        flops=flops,
        numbers={name: each.detach().numpy() for name, each in (parameters | state).items()},
        rank=rank,
        **more,
    )


def local(tensor: Any) -> Any:
    """Return this process's part of a tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def bytes_of(tensors: Iterable[Any]) -> int:
    """Return the bytes of tensors."""
    return sum(each.numel() * each.element_size() for each in tensors)
