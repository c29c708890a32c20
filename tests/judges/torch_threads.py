"""Training loops in torch whose steps are taken by several threads; the main thread reports each update."""

import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from judges.process import Json, Profile
from judges.torch_loops import CLASSES, facts_of
from torch import nn
from torch.nn import functional

from tbdprof.hooks.on_torch.watch import thread_members
from tbdprof.loop.plan import Plan

BATCH, WIDTH = 6, 40


def network(hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))


@dataclass
class Trainer:
    """Trains a network of its own in a thread of its own, until it is closed."""

    hidden: int
    updates: "queue.Queue[RuntimeError | None]"
    pausing: threading.Event
    going: threading.Event
    meet: threading.Barrier | None = None
    planted: int = 0  # floats kept with each update
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
        except threading.BrokenBarrierError:
            pass  # the others have ended
        except RuntimeError as error:
            self.updates.put(error)

    def step(self) -> None:
        inputs, labels = torch.randn(BATCH, WIDTH), torch.randint(CLASSES, (BATCH,))
        self.optimizer.zero_grad(set_to_none=False)
        loss = functional.cross_entropy(self.model(inputs), labels)
        self._wait_for_others()
        loss.backward()  # type: ignore[no-untyped-call]
        self._wait_for_others()
        self.optimizer.step()
        if self.planted:
            self.kept.append(torch.empty(self.planted))

    def _wait_for_others(self) -> None:
        if self.meet is not None:
            self.meet.wait(30)


class Crew:
    """Several trainers, which can be paused between two updates of each."""

    def __init__(self, *widths: int, **options: Any) -> None:
        self.updates: queue.Queue[RuntimeError | None] = queue.Queue(1)  # nobody runs ahead of what is reported
        self.early: list[RuntimeError | None] = []  # reported while the threads were to pause
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
                if trainer.meet is not None:
                    trainer.meet.abort()
            self.go()
            while any(trainer.thread.is_alive() for trainer in self.trainers):
                with suppress(queue.Empty):
                    self.updates.get(timeout=0.01)

    def wait(self) -> None:
        """Wait for the next update by any."""
        error = self.early.pop() if self.early else self.updates.get(timeout=30)
        if error is not None:
            raise error

    def pause(self) -> None:
        self.going.clear()
        self.pausing.set()
        while not all(trainer.idle.is_set() for trainer in self.trainers):
            with suppress(queue.Empty):
                self.early.append(self.updates.get(timeout=0.01))

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
    """Profile a crew that runs free, from before it starts until all windows are over."""
    with crew.running(), lengthened(profile(crew.models, crew.optimizers, **options), steps) as prof:
        while prof.active:
            crew.wait()
            prof.step(BATCH)
    return facts_of(*crew.models)


def together(profile: Profile) -> Json:
    """Two threads wait for each other after each pass, so that both hold what is between; updates keep a tensor."""
    crew = Crew(32, 48, meet=threading.Barrier(2))
    for trainer, floats in zip(crew.trainers, (1000, 3000), strict=True):
        trainer.planted = floats
    return train(profile, crew)


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


def paused(profile: Profile) -> Json:
    """The threads pause at the edges of windows, as those of a workload of the suite do."""
    crew, seen = Crew(32, 48), 0
    with crew.running(), lengthened(profile(crew.models, crew.optimizers), 12) as prof:
        while prof.active:
            crew.wait()
            if edges_near(prof):
                crew.pause()
            prof.step(BATCH)
            crew.go()
            seen += 1
    return facts_of(*crew.models, seen=seen)


def edges_near(prof: Any) -> bool:
    """Return whether a window may begin or end at the next step."""
    return len(prof.recording.windows) != 3 or prof.recording.windows[-1].name != "clean"


def stuck(profile: Profile) -> Json:
    """A thread is inside a backward pass when the memory window ends, and for long after."""
    thread_members.LEAVE_S = 0.02
    crew, is_open, is_inside, ended = Crew(32), threading.Event(), threading.Event(), threading.Event()
    with crew.running(), lengthened(profile(crew.models, crew.optimizers), 4) as prof:
        other = threading.Thread(target=lambda: hold(is_open, is_inside, ended))
        other.start()
        while prof.active:
            if prof.recording.windows and prof.recording.windows[-1].name == "memory":
                is_open.set()
                is_inside.wait(30)
            crew.wait()
            prof.step(BATCH)
        ended.set()
        other.join(30)
    return facts_of(*crew.models)


def hold(is_open: threading.Event, is_inside: threading.Event, ended: threading.Event) -> None:
    """Once the memory window is open, wait in Python's own library inside a backward pass, which torch records."""

    def wait(_: torch.Tensor) -> None:
        is_inside.set()
        ended.wait(30)

    is_open.wait(30)
    held = nn.Identity()(torch.ones(1, requires_grad=True)) * 2  # the call of a module joins
    held.register_hook(wait)
    held.backward()


def interrupted(profile: Profile) -> Json:
    """A signal comes while threads train in the memory window."""
    crew, caught, updates = Crew(32, 48), "", 0
    try:
        with crew.running(), lengthened(profile(crew.models, crew.optimizers), 40) as prof:
            while prof.active:
                crew.wait()
                prof.step(BATCH)
                updates += prof.recording.windows[-1].name == "memory"
                if updates == 12:
                    signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        caught = "KeyboardInterrupt"
    return facts_of(*crew.models, caught=caught)


def many(profile: Profile) -> Json:
    """Many updates by threads that never pause: none may be lost, and the process goes on."""
    crew, updates = Crew(16, 16, 16), 0
    with crew.running(), lengthened(profile(crew.models, crew.optimizers, repeat=3), 60) as prof:
        while prof.active:
            crew.wait()
            prof.step(BATCH)
            updates += 1
    return facts_of(*crew.models, updates=updates)
