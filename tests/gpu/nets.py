"""Small things to train on a card, in torch: a transformer with Adam, products of known size, a loop that waits."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu import setting
from gpu.setting import DEVICE, synchronize

Step = Callable[[], float]
SEQUENCE, WIDTH, WORDS, LAYERS = setting.size(128, 16), setting.size(512, 64), setting.size(8192, 100), 4
PRODUCTS = {
    "fp32": ((1024, 1024, 8192), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 1024, 4096)),
    "tf32": ((4096, 4096, 4096), (8192, 4096, 4096)),
    "bf16": ((4096, 4096, 4096), (8192, 8192, 4096)),
}
TIMES = 8  # each product a step


@dataclass(frozen=True, slots=True)
class Net:
    """Something to profile: what to watch, a step, and the units it consumes."""

    models: list[Any]
    optimizers: list[Any]
    step: Step
    unit: str
    batch_size: int


def transformer(batch_size: int = 32) -> Net:
    """Return an encoder that learns to repeat its input, with Adam."""
    import torch
    from torch import nn

    class Repeater(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, WIDTH)
            layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.1, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
            self.answer = nn.Linear(WIDTH, WORDS)

        def forward(self, text: Any) -> Any:
            return self.answer(self.encoder(self.words(text)))

    model = Repeater().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    text = torch.randint(WORDS, (batch_size, SEQUENCE), device=DEVICE)

    def step() -> float:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(text).flatten(0, 1), text.flatten()).backward()
        optimizer.step()
        return batch_size

    return Net([model], [optimizer], step, "samples", batch_size)


def products(precision: str) -> Net:
    """Return matrix products of known sizes, each in a module of its own, named by its size."""
    import torch
    from torch import nn

    half = precision == "bf16"
    sizes = [tuple(setting.size(each, each // 32) for each in size) for size in PRODUCTS[precision]]

    class Product(nn.Module):
        def __init__(self, rows: int, columns: int, inner: int) -> None:
            super().__init__()
            kind = torch.bfloat16 if half else torch.float32
            self.one = torch.randn(rows, inner, device=DEVICE, dtype=kind)
            self.other = torch.randn(inner, columns, device=DEVICE, dtype=kind)

        def forward(self) -> Any:
            return [self.one @ self.other for _ in range(TIMES)]

    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for size in sizes:
                self.add_module(named(size), Product(*size))

        def forward(self) -> None:
            for each in self.children():
                each()

    model = Products()

    def step() -> float:
        with torch.no_grad():
            model()
        return 1.0

    return Net([model], [], step, "rounds", 1)


def named(size: tuple[int, int, int]) -> str:
    """Return the name of a product's module."""
    return "by".join(map(str, size))


def flops(layer: str) -> float:
    """Return the FLOPs of the product a module is named for."""
    rows, columns, inner = map(int, layer.split("by"))
    return 2.0 * rows * columns * inner


def waiting(wait_s: float = 0.012) -> Net:
    """Return a loop whose device idles a good part of each step, in few long kernels."""
    import torch

    one = torch.randn(setting.size(8192, 512), setting.size(8192, 512), device=DEVICE)

    class Square(torch.nn.Module):
        def forward(self, given: Any) -> Any:
            return given @ given

    model = Square()

    def step() -> float:
        model(one)
        synchronize()
        time.sleep(wait_s)
        return 1.0

    return Net([model], [], step, "rounds", 1)


def suite_net(name: str, batch_size: int, precision: str) -> Net:
    """Return a model of the suite."""
    from tbdprof import suite
    from tbdprof.loop.new_run import listed

    sizes = {"batch_size": setting.size(batch_size, 2), "options": setting.IMAGE}
    config = suite.configure(suite.find(name), device=DEVICE, precision=setting.precision(precision), **sizes)
    made = suite.build(name, "torch", config)
    return Net(listed(made.model), listed(made.optimizer), made.step, suite.find(name).unit, config.batch_size)


def seconds_per_step(net: Net, steps: int = 5) -> float:
    """Return how long a step takes, after as many to warm up."""
    begun = 0.0
    for step in range(2 * steps):
        if step == steps:
            synchronize()
            begun = time.perf_counter()
        net.step()
    synchronize()
    return (time.perf_counter() - begun) / steps
