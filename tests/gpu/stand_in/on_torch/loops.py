"""Small loops in torch on the simulated device, each recorded in this process: `python loops.py NAME FILE`.

Prints as JSON what torch's allocator counted at the end; the recording is in the file.
"""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tbdprof.hooks import Setting
from tbdprof.launch.prepared import prepared
from tbdprof.loop.new_run import new_run
from tbdprof.loop.plan import Plan
from tbdprof.loop.profiler import LoopProfiler

DEVICE = "cuda:0"
WORDS, WIDTH, LENGTH, BATCH = 1000, 128, 16, 8
PLAN = Plan(
    warmup=2,
    steps=3,
    memory_steps=3,
    kernel_steps=4,
    kernel_block_steps=2,
    windows=("clean", "memory", "kernels", "memory", "kernels"),
)

Step = Callable[[], float]


class Words(nn.Module):
    """A small transformer that repeats its input."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.answer = nn.Linear(WIDTH, WORDS)

    def forward(self, text: torch.Tensor) -> Any:
        """Return a score for each word at each place."""
        return self.answer(self.encoder(self.words(text)))


def loop(
    *, autocast: bool = False, parts: int = 1, frozen: bool = False, between: Callable[[], None] | None = None
) -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    """Return a transformer, Adam and a step, with what is asked for besides."""
    model = Words().to(DEVICE)
    if frozen:
        model.encoder.layers[0].requires_grad_(False)
    optimizer = torch.optim.Adam((each for each in model.parameters() if each.requires_grad), 1e-4)
    scaler = torch.amp.GradScaler(enabled=autocast)
    text = torch.randint(WORDS, (BATCH, LENGTH))

    def step() -> float:
        optimizer.zero_grad()
        for part in text.chunk(parts):
            given = part.pin_memory().to(DEVICE, non_blocking=True)
            with torch.autocast("cuda", torch.float16) if autocast else nullcontext():
                loss = nn.functional.cross_entropy(model(given).flatten(0, 1), given.flatten())
            scaler.scale(loss).backward()
            if between is not None:
                between()
        scaler.step(optimizer)
        scaler.update()
        return BATCH

    return model, optimizer, step


def on_streams() -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    """Return a loop that computes something beside it on a stream of its own."""
    side, kept = torch.cuda.Stream(), torch.ones(1 << 20, device=DEVICE)

    def beside() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            other = kept * 2
            kept.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        other.add_(1)
        other.record_stream(torch.cuda.current_stream())

    return loop(between=beside)


def graph() -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    """Return a loop whose forward pass of another model is a captured graph."""
    other = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()).to(DEVICE)
    given = torch.randn(64, WIDTH, device=DEVICE)
    with torch.no_grad():
        other(given)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            other(given)
    return loop(between=captured.replay)


def capturing() -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    """Return a loop that captures another model as a graph in each step, and lets go of the one before."""
    other = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()).to(DEVICE)
    given = torch.randn(64, WIDTH, device=DEVICE)
    kept: list[object] = []

    def between() -> None:
        captured = torch.cuda.CUDAGraph()
        with torch.no_grad():
            other(given)
            with torch.cuda.graph(captured):
                made = other(given)
        captured.replay()
        kept[:] = [captured, made]

    return loop(between=between)


def convolutions() -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    """Return a small convolutional network with momentum."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(32 * 30 * 30, 10)
    ).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images = torch.randn(BATCH, 3, 32, 32)

    def step() -> float:
        optimizer.zero_grad()
        model(images.to(DEVICE)).sum().backward()
        optimizer.step()
        return BATCH

    return model, optimizer, step


def growing() -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    """Return a loop that keeps 16 MiB more of every step."""
    kept: list[torch.Tensor] = []
    return loop(between=lambda: kept.append(torch.empty(4 << 20, device=DEVICE)))


LOOPS = {
    "plain": loop,
    "autocast": lambda: loop(autocast=True),
    "accumulated": lambda: loop(parts=2),
    "frozen": lambda: loop(frozen=True),
    "emptied": lambda: loop(between=torch.cuda.empty_cache),
    "streams": on_streams,
    "graph": graph,
    "capturing": capturing,
    "convolutions": convolutions,
    "growing": growing,
}


def main(name: str, path: Path) -> None:
    """Record a loop, and print what torch's allocator counts at its end."""
    with prepared("torch", Setting(DEVICE, 1, "fp32", 0)) as hook:
        model, optimizer, step = LOOPS[name]()
        hook.watch([model], [optimizer])
        run = new_run(name, "torch", unit="samples", batch_size=BATCH, precision="fp32")
        with LoopProfiler(hook, run, PLAN, path=path) as profiler:
            while profiler.active:
                profiler.step(step())
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats()
        counted = {each: stats[each] for each in ("allocated_bytes.all.peak", "reserved_bytes.all.current")}
        print(json.dumps(counted | {"backend": torch.cuda.get_allocator_backend()}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
