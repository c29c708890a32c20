"""What torch's libraries take of a device when something small is computed: run by a process of its own."""

import sys

import torch

from tbdprof.collect.gpu import context


def main(index: int) -> None:
    """Print, as JSON, what this process takes of a device by computing a product and a convolution, both ways."""
    sys.stdout.write(context.around(index, lambda: compute(f"cuda:{index}")) + "\n")


def compute(device: str) -> int:
    """Compute a matrix product and a convolution with their gradients; return what the allocator holds then."""
    matrix = torch.ones(64, 64, device=device, requires_grad=True)
    (matrix @ matrix).sum().backward()  # type: ignore[no-untyped-call]
    images = torch.ones(2, 4, 16, 16, device=device)
    kernels = torch.ones(8, 4, 3, 3, device=device, requires_grad=True)
    torch.nn.functional.conv2d(images, kernels).sum().backward()  # type: ignore[no-untyped-call]
    if device == "cpu":
        return 0
    torch.cuda.synchronize(device)
    return torch.cuda.memory_reserved(device)
