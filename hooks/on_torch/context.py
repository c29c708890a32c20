"""Measure how much device memory torch's libraries take for a small computation; runs in a process of its own."""

import sys

import torch

from tbdprof.collect.gpu import context


def main(index: int) -> None:
    """Print as JSON the device memory this process takes for a matmul and a convolution, forward and backward."""
    sys.stdout.write(context.around(index, lambda: compute(f"cuda:{index}")) + "\n")


def compute(device: str) -> int:
    """Compute a matmul and a convolution with their gradients; return the bytes that the allocator then holds."""
    matrix = torch.ones(64, 64, device=device, requires_grad=True)
    (matrix @ matrix).sum().backward()  # type: ignore[no-untyped-call]
    images = torch.ones(2, 4, 16, 16, device=device)
    kernels = torch.ones(8, 4, 3, 3, device=device, requires_grad=True)
    torch.nn.functional.conv2d(images, kernels).sum().backward()  # type: ignore[no-untyped-call]
    if device == "cpu":
        return 0
    torch.cuda.synchronize(device)
    return torch.cuda.memory_reserved(device)
