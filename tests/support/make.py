"""Builders of short recordings, written as the story of what a framework did."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from plain_rows import table

from tbdprof.facts.counters import SYNCHRONIZING
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import AllocationKind, KernelKind, Operation, Parameter, Phase, Role, Run, SpanKind, Strings
from tbdprof.facts.work import Work
from tbdprof.facts.work import text as work_text

DEVICE = "cpu"


def run(**changes: object) -> Run:
    """Return a run of a model nobody has."""
    return Run(**{"model": "toy", "framework": "torch", "device": DEVICE, "cores": 2.0, **changes})  # type: ignore[arg-type]


class MemoryStory:
    """A memory window, event by event; every call takes the next place in the order."""

    def __init__(self, *, base_total: int = 0, counts: bool = True) -> None:
        self.strings = Strings()
        self.total = base_total
        self.counts = counts
        self.sequence = 0
        self.address = 0x1000
        self.allocations: list[tuple[object, ...]] = []
        self.spans: list[list[object]] = []
        self.owners: list[tuple[object, ...]] = []
        self.marks: list[int] = []
        self.open: list[int] = []
        self.sizes: dict[int, int] = {}

    def existing(self, size: int, *, was_tensor: int = 1, address: int | None = None) -> int:
        """Report a block that was there when the window began."""
        return self._made(AllocationKind.EXISTING, size, was_tensor, address, sequence=0)

    def allocate(self, size: int, *, was_tensor: int = 1, address: int | None = None) -> int:
        """Allocate a block and return its address."""
        self.total += size
        return self._made(AllocationKind.ALLOCATED, size, was_tensor, address, sequence=self._next())

    def free(self, address: int) -> None:
        """Free the block at an address."""
        size = self.sizes[address]
        self.total -= size
        self._row(AllocationKind.FREED, address, size, 1, self._next())

    def unseen(self, size: int) -> None:
        """Let memory come (or go, below 0) that only the framework's total shows."""
        self.total += size

    def own(self, address: int, role: Role, name: str = "", size: int | None = None) -> None:
        """Read an owner."""
        shape = self.strings.add("[1]")
        size = self.sizes[address] if size is None else size
        self.owners.append(
            (
                self._next(),
                self.strings.add(DEVICE),
                address,
                size,
                role,
                self.strings.add(name),
                shape,
            )
        )

    def mark(self) -> None:
        """End a step."""
        self.marks.append(self._next())

    @contextmanager
    def span(
        self,
        kind: SpanKind,
        name: str,
        phase: Phase,
        *,
        operation: Operation = Operation.OTHER,
        forward: int = -1,
        operand: int = 0,
        thread: int = 1,
        work: Work | None = None,
    ) -> Iterator[None]:
        """Enclose what happens inside in a span."""
        identity = len(self.spans)
        parent = self.open[-1] if self.open else -1
        begun = self._next()
        text = self.strings.add(name)
        row: list[object] = [
            identity,
            parent,
            kind,
            phase,
            operation,
            text,
            thread,
            begun,
            0,
            begun,
            0,
            forward,
            -1,
            operand,
            -1 if work is None else self.strings.add(work_text(work)),
        ]
        self.spans.append(row)
        self.open.append(identity)
        yield
        self.open.pop()
        row[8] = row[10] = self._next()

    def phase(self, phase: Phase) -> "contextmanager[None]":  # type: ignore[valid-type]
        """Enclose what happens inside in a phase."""
        return self.span(SpanKind.PHASE, phase.name.lower(), phase)

    def operator(self, name: str, phase: Phase, **more: object) -> "contextmanager[None]":  # type: ignore[valid-type]
        """Enclose what happens inside in an operator."""
        return self.span(SpanKind.OPERATOR, name, phase, **more)  # type: ignore[arg-type]

    def window(self, ordinal: int = 0) -> Window:
        """Return the window written so far."""
        steps = [(index, index, index * 100, index * 100 + 100, 1.0, mark) for index, mark in enumerate(self.marks)]
        tables = {
            "allocation": table("allocation", self.allocations),
            "span": table("span", [tuple(row) for row in self.spans]),
            "owner": table("owner", self.owners),
            "step": table("step", list[tuple[object, ...]](steps)),
        }
        return Window(ordinal, "memory", "complete", tables)

    def recording(self, **run_changes: object) -> Recording:
        """Return a recording of this window alone."""
        return Recording(run(**run_changes), [self.window()], self.strings)

    def _made(self, kind: AllocationKind, size: int, was_tensor: int, address: int | None, sequence: int) -> int:
        if address is None:
            self.address += 0x1000
            address = self.address
        self.sizes[address] = size
        self._row(kind, address, size, was_tensor, sequence)
        return address

    def _row(self, kind: AllocationKind, address: int, size: int, was_tensor: int, sequence: int) -> None:
        device, span = self.strings.add(DEVICE), self.open[-1] if self.open else -1
        total = self.total if self.counts else -1
        self.allocations.append(
            (
                sequence,
                kind,
                device,
                1,
                address,
                size,
                size,
                sequence * 10,
                span,
                was_tensor,
                -1,
                total,
            )
        )

    def _next(self) -> int:
        self.sequence += 1
        return self.sequence


class KernelStory:
    """A kernels window written in nanoseconds: steps, spans with their begin and end, and kernels of a GPU.

    Every step is a block of its own unless a block is given; the first block of a window settles, so that a story that
    wants all its steps counted begins with `settle`.
    """

    def __init__(self, strings: Strings | None = None, device: str = DEVICE) -> None:
        self.strings = strings or Strings()
        self.device = device
        self.steps: list[tuple[object, ...]] = []
        self.spans: list[tuple[object, ...]] = []
        self.kernels: list[tuple[object, ...]] = []
        self.samples: list[tuple[object, ...]] = []

    def settle(self, start: int = -1000, end: int = -900) -> None:
        """Take the step that does not count."""
        self.step(start, end)

    def step(self, start: int, end: int, *, units: float = 1.0, block: int | None = None) -> None:
        """Take a step."""
        index = len(self.steps)
        self.steps.append((index, index if block is None else block, start, end, units, -1))

    def span(
        self,
        kind: SpanKind,
        name: str,
        phase: Phase,
        start: int,
        end: int,
        *,
        parent: int = -1,
        operation: Operation = Operation.OTHER,
        forward: int = -1,
        thread: int = 1,
        work: Work | None = None,
    ) -> int:
        """Report a span and return its id."""
        identity = len(self.spans)
        place = (identity, parent, kind, phase, operation, self.strings.add(name), thread, start, end, 0, 0)
        work_index = -1 if work is None else self.strings.add(work_text(work))
        self.spans.append((*place, forward, -1, 0, work_index))
        return identity

    def operator(self, name: str, phase: Phase, start: int, end: int, **more: object) -> int:
        """Report an operator and return its id."""
        return self.span(SpanKind.OPERATOR, name, phase, start, end, **more)  # type: ignore[arg-type]

    def layer(self, name: str, start: int, end: int, phase: Phase = Phase.FORWARD, **more: object) -> int:
        """Report a call of a layer and return its id."""
        return self.span(SpanKind.LAYER, name, phase, start, end, **more)  # type: ignore[arg-type]

    def kernel(
        self,
        name: str,
        start: int,
        end: int,
        *,
        span: int = -1,
        stream: int = 7,
        kind: KernelKind = KernelKind.KERNEL,
        moved_bytes: int = -1,
        device: str | None = None,
        grid: str = "",
        block: str = "",
        launch: int = -1,
        thread: int = -1,
    ) -> None:
        """Report a kernel of a GPU; grid and block as JSON, "" for not known."""
        where = self.strings.add(self.device if device is None else device)
        named = (self.strings.add(name), kind, where, stream, launch, start, end, span)
        geometry = (self.strings.add(each) if each else -1 for each in (grid, block))
        self.kernels.append((*named, *geometry, -1, -1, moved_bytes, thread))

    def wait(self, start: int, end: int) -> None:
        """Report a call in which the host waits for the device."""
        self.samples.append((self.strings.add(SYNCHRONIZING), self.strings.add(self.device), end, 1.0, start))

    def window(self, ordinal: int = 0) -> Window:
        """Return the window written so far."""
        tables = {
            "step": table("step", self.steps),
            "span": table("span", self.spans),
            "kernel": table("kernel", self.kernels),
            "sample": table("sample", self.samples),
        }
        return Window(ordinal, "kernels", "complete", tables)

    def recording(self, **run_changes: object) -> Recording:
        """Return a recording of this window alone."""
        return Recording(run(**{"device": self.device, **run_changes}), [self.window()], self.strings)


def timed_window(
    ordinal: int,
    name: str,
    block_seconds: list[float],
    *,
    units: float = 1.0,
    steps_per_block: int = 1,
    start_s: float = 0.0,
) -> Window:
    """Return a window whose blocks take given times, in steps of equal length."""
    rows, now, index = list[tuple[object, ...]](), round(start_s * 1e9), 0
    for block, seconds in enumerate(block_seconds):
        step = round(seconds * 1e9 / steps_per_block)
        for _ in range(steps_per_block):
            rows.append((index, block, now, now + step, units, -1))
            now, index = now + step, index + 1
    return Window(ordinal, name, "complete", {"step": table("step", rows)})


def parameter(name: str, *shape: int, trainable: bool = True, is_buffer: bool = False) -> Parameter:
    """Return a float32 parameter."""
    return Parameter(name, shape, 4, trainable, is_buffer)


def same_table(one: np.ndarray, other: np.ndarray) -> bool:  # type: ignore[type-arg]
    """Return whether two tables hold the same rows."""
    return one.dtype == other.dtype and bool((one == other).all())
