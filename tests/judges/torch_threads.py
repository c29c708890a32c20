"""Training loops in torch whose steps are taken by several threads; the main thread tells of each update."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from judges.process import Json, Profile
from judges.torch_loops import CLASSES, told_of
from torch import Tensor, nn
from torch.nn import functional

from tbdprof.plan import Plan

BATCH, WIDTH = 6, 40


def network(hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))


@dataclass
class Trainer:
    """Trains a network of its own in a thread of its own, until it is closed."""

    hidden: int
    updates: "queue.Queue[BaseException | None]"
    pausing: threading.Event
    going: threading.Event
    planted: Callable[[], object] = lambda: None
    closed: bool = False
    idle: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.model = network(self.hidden)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        self.kept: list[object] = []
        self.thread = threading.Thread(target=self._train, daemon=True)

    def _train(self) -> None:
        try:
            while not self.closed:
                self.step()
                self.updates.put(None)
                if self.pausing.is_set():
                    self.idle.set()
                    self.going.wait()
        except BaseException as error:
            self.updates.put(error)

    def step(self) -> None:
        inputs, labels = torch.randn(BATCH, WIDTH), torch.randint(CLASSES, (BATCH,))
        self.optimizer.zero_grad(set_to_none=False)
        functional.cross_entropy(self.model(inputs), labels).backward()
        self.optimizer.step()
        self.kept.append(self.planted())


class Crew:
    """Several trainers, which can be paused between two updates of each."""

    def __init__(self, *widths: int, **options: Any) -> None:
        self.updates: queue.Queue[BaseException | None] = queue.Queue(1)  # nobody runs ahead of what is told
        self.pausing, self.going = threading.Event(), threading.Event()
        self.trainers = [Trainer(hidden, self.updates, self.pausing, self.going, **options) for hidden in widths]

    @property
    def models(self) -> list[nn.Module]:
        return [trainer.model for trainer in self.trainers]

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        return [trainer.optimizer for trainer in self.trainers]

    @contextmanager
    def running(self) -> Iterator[None]:
        for trainer in self.trainers:
            trainer.thread.start()
        try:
            yield
        finally:
            for trainer in self.trainers:
                trainer.closed = True
            self.go()
            while any(trainer.thread.is_alive() for trainer in self.trainers):
                with suppress(queue.Empty):
                    self.updates.get(timeout=0.01)

    def wait(self) -> None:
        """Wait for the next update by any."""
        error = self.updates.get(timeout=30)
        if error is not None:
            raise error

    def pause(self) -> None:
        self.going.clear()
        self.pausing.set()
        for trainer in self.trainers:
            assert trainer.idle.wait(30)

    def go(self) -> None:
        self.pausing.clear()
        for trainer in self.trainers:
            trainer.idle.clear()
        self.going.set()


def lengthened(profiler: Any, steps: int) -> Any:
    """Return a profiler whose windows of memory and kernels last so many updates, several by each thread."""
    joining = profiler._joining

    def longer(*arguments: object) -> tuple[Plan, object]:
        plan, instruments = joining(*arguments)
        return replace(plan, memory_steps=steps, kernel_steps=steps), instruments

    profiler._joining = longer
    return profiler


def train(profile: Profile, crew: Crew, steps: int = 12, **options: Any) -> Json:
    """Profile a crew that runs free, from before it starts until all windows are told."""
    with crew.running(), lengthened(profile(crew.models, crew.optimizers, **options), steps) as prof:
        while prof.active:
            crew.wait()
            prof.step(BATCH)
    return told_of(*crew.models)


def two_free(profile: Profile) -> Json:
    return train(profile, Crew(32, 48))


def three_large(profile: Profile) -> Json:
    """Operators long enough to run, allocate and free side by side: they let go of Python's lock."""
    return train(profile, Crew(1500, 1800, 2100), 24)


def shared(profile: Profile) -> Json:
    """Hogwild: several threads compute the gradients of the same weights, and update them, without a lock."""
    crew = Crew(64, 64, 64)
    for trainer in crew.trainers[1:]:
        for parameter, own in zip(crew.models[0].parameters(), trainer.model.parameters(), strict=True):
            own.data = parameter.data
    return train(profile, crew, 24)
