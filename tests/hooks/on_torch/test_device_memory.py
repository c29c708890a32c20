"""The CUDA allocator's account, through fakes of torch.cuda in the formats its documentation gives."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from make import parameter, run
from plain_rows import table
from torch import nn

from tbdprof.analysis.memory.breakdown import measure
from tbdprof.facts.counters import (
    ALLOCATOR_ALLOCATED,
    ALLOCATOR_FRAGMENTS,
    ALLOCATOR_PRIVATE,
    ALLOCATOR_RESERVED,
    DEVICE_FREE,
)
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import AllocationKind, Phase, Role, Strings
from tbdprof.facts.windows import OUT_OF_MEMORY
from tbdprof.hooks.levels import samples
from tbdprof.hooks.on_torch import context, devices, facts, hook
from tbdprof.hooks.on_torch.memory import cuda_allocator
from tbdprof.hooks.on_torch.memory.existing import blocks
from tbdprof.hooks.on_torch.memory.table import build
from tbdprof.hooks.on_torch.session.backward_runs import mark_last_runs, relate
from tbdprof.hooks.on_torch.session.events import (
    Enter,
    Event,
    Existing,
    Leave,
    Mark,
    Marked,
    MemoryEvent,
    Owned,
    Point,
    Region,
    Scope,
    Trace,
)
from tbdprof.hooks.on_torch.watch.watched import Watched
from tbdprof.results.memory import Memory

GPU = "cuda:0"
MAIN, AUTOGRAD = 1, 2
MIB = 1 << 20
ADDRESSES = itertools.count(0x7F0000000000, 0x200000)


def block(size: int, requested: int, state: str = "active_allocated") -> dict[str, Any]:
    return {"address": next(ADDRESSES), "size": size, "requested_size": requested, "state": state, "frames": []}


def segment(*blocks: dict[str, Any], pool: tuple[int, int] = (0, 0), **more: object) -> dict[str, Any]:
    total = sum(each["size"] for each in blocks)
    return {"device": 0, "total_size": total, "segment_pool_id": pool, "blocks": list(blocks), **more}


@dataclass
class FakeCuda:
    """torch.cuda with one device: 512 bytes of 40 in use, 1 MiB free beside it, and a captured graph's pool."""

    segments: list[dict[str, Any]] = field(
        default_factory=lambda: [
            segment(block(512, 40), block(MIB, 0, "inactive"), block(1024, 1000, "active_awaiting_free")),
            segment(block(2 * MIB, 2 * MIB), pool=(0, 1)),
        ]
    )
    allocated: int = 512 + 2 * MIB
    snapshot_fails: bool = False
    backend: str = "native"
    emptied: int = 0

    def memory_snapshot(self, mempool_id: object = None, *, include_traces: bool = True) -> list[dict[str, Any]]:
        assert not include_traces
        if self.snapshot_fails:
            raise RuntimeError("cudaMallocAsync does not yet support snapshot")
        return self.segments

    def memory_stats(self, device: str) -> dict[str, int]:
        assert device == GPU
        return {
            "reserved_bytes.all.current": 4 * MIB,
            "allocated_bytes.all.current": self.allocated,
            "inactive_split_bytes.all.current": MIB,
            "num_ooms": 0,
        }

    def memory_allocated(self, device: str) -> int:
        return self.allocated

    def mem_get_info(self, device: str) -> tuple[int, int]:
        return 7 * MIB, 100 * MIB

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def get_allocator_backend(self) -> str:
        return self.backend

    def empty_cache(self) -> None:
        self.emptied += 1


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    for name in [name for name in dir(FakeCuda) if not name.startswith("_") and callable(getattr(fake, name))]:
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    return fake


def test_blocks_in_use_are_reported_with_what_was_asked_for(cuda: FakeCuda) -> None:
    found = [each for each in blocks(Watched()) if each.device != "cpu"]

    assert [(each.device, each.bytes, each.requested_bytes) for each in found] == [
        (GPU, 512, 40),
        (GPU, 2 * MIB, 2 * MIB),
    ]
    assert cuda_allocator.uncounted(found, GPU) == {}


def test_blocks_that_are_not_what_the_allocator_counts_are_reported(cuda: FakeCuda) -> None:
    cuda.allocated += 8
    found = cuda_allocator.blocks()

    reason = cuda_allocator.uncounted(found, GPU)["existing blocks"]
    assert (
        reason == f"when the memory window began cuda:0 counts {520 + 2 * MIB} bytes in use and lists {512 + 2 * MIB}"
    )


def test_an_allocator_without_a_list_of_blocks_ends_no_window(cuda: FakeCuda) -> None:
    cuda.snapshot_fails = True

    assert cuda_allocator.blocks() == []
    assert "lists 0" in cuda_allocator.uncounted([], GPU)["existing blocks"]
    assert cuda_allocator.pools(GPU)[0] == {ALLOCATOR_PRIVATE: 0}


def test_an_allocator_that_the_profiler_does_not_follow_is_named(cuda: FakeCuda) -> None:
    assert cuda_allocator.unfollowed(GPU) == {}

    cuda.backend = "cudaMallocAsync"

    assert "does not follow the allocator cudaMallocAsync" in cuda_allocator.unfollowed(GPU)["memory"]
    assert cuda_allocator.unfollowed("cpu") == {}


def test_what_the_allocator_holds_and_what_the_driver_has_left(cuda: FakeCuda) -> None:
    assert cuda_allocator.levels(GPU) == {
        ALLOCATOR_RESERVED: 4 * MIB,
        ALLOCATOR_ALLOCATED: 512 + 2 * MIB,
        ALLOCATOR_FRAGMENTS: MIB,
        DEVICE_FREE: 7 * MIB,
    }
    assert cuda_allocator.levels("cpu") == cuda_allocator.levels(None) == {}


def test_no_list_of_all_blocks_is_made_within_the_steps(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(**_: object) -> None:
        raise AssertionError("a list of all blocks")

    monkeypatch.setattr(torch.cuda, "memory_snapshot", slow)
    assert ALLOCATOR_RESERVED in cuda_allocator.levels(GPU)


def test_pools_of_their_own_and_segments_that_grow_are_remarked(cuda: FakeCuda) -> None:
    private, remarks = cuda_allocator.pools(GPU)
    assert private == {ALLOCATOR_PRIVATE: 2 * MIB}
    assert set(remarks) == {"rounding", "private pools"}
    cuda.segments = [segment(block(512, 512), is_expandable=True)]

    _, remarks = cuda_allocator.pools(GPU)
    assert set(remarks) == {"rounding", "expandable segments"}
    assert remarks["expandable segments"].startswith("512 reserved bytes")


def test_a_window_reports_the_allocators_levels_at_each_step_and_its_pools_at_the_end(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watched, "device", lambda watched: GPU)
    monkeypatch.setattr(devices, "release_workspaces", lambda: None)
    watched, strings = hook(), Strings()
    watched.attach()
    try:
        watched.start("memory")
        watched.mark_step()
        watched.stop()
        drained = watched.drain(strings)
    finally:
        monkeypatch.undo()
        watched.close()

    counters = [strings[int(row["counter"])] for row in drained.tables["sample"]]
    assert [counters.count(name) for name in (ALLOCATOR_RESERVED, DEVICE_FREE, ALLOCATOR_PRIVATE)] == [2, 2, 1]
    assert counters[-1] == ALLOCATOR_PRIVATE
    assert {"rounding", "private pools"} <= set(drained.missing)


def test_what_is_unused_is_given_back(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.give_back_memory() is None
    assert cuda.emptied == 1

    def gone() -> None:
        raise RuntimeError("CUDA error: an illegal memory access\nmore")

    monkeypatch.setattr(torch.cuda, "empty_cache", gone)
    assert devices.give_back_memory() == "CUDA error: an illegal memory access"


def test_levels_become_samples_at_their_time() -> None:
    strings = Strings()
    rows = samples([(5, {ALLOCATOR_RESERVED: 7}), (9, {ALLOCATOR_RESERVED: 8})], GPU, strings)

    assert [(strings[row["counter"]], strings[row["device"]], int(row["time_ns"]), row["value"]) for row in rows] == [
        (ALLOCATOR_RESERVED, GPU, 5, 7.0),
        (ALLOCATOR_RESERVED, GPU, 9, 8.0),
    ]


def test_what_is_in_memory_is_read_without_a_session_where_there_is_no_room_for_one() -> None:
    model = nn.Linear(3, 2)
    watched, strings = hook(), Strings()
    watched.attach()
    watched.watch([model], [])
    try:
        watched.start(OUT_OF_MEMORY)
        watched.mark_step()
        watched.stop()
        tables = watched.drain(strings).tables
    finally:
        watched.close()

    addresses = {model.weight.data_ptr(): "weight", model.bias.data_ptr(): "bias"}
    assert {addresses[int(row["address"])]: int(row["bytes"]) for row in tables["owner"]} == {"weight": 24, "bias": 8}
    assert set(addresses) <= {int(row["address"]) for row in tables["allocation"]}
    assert {int(row["kind"]) for row in tables["allocation"]} == {AllocationKind.EXISTING}
    assert len(tables["sample"]) == 0


def test_something_small_is_computed_both_ways() -> None:
    assert context.compute("cpu") == 0


def test_a_step_counter_that_is_not_where_the_parameters_are_is_no_memory_of_the_device() -> None:
    model = nn.Linear(2, 2, device="meta")
    watched = Watched()
    watched.add_model(model)
    kinds = {False: torch.optim.Adam(model.parameters()), True: torch.optim.Adam(model.parameters(), capturable=True)}
    for optimizer in kinds.values():
        watched.add_optimizer(optimizer)

    listed = facts.optimizer_list(watched)
    assert ["scalar_bytes" in each.settings for each in listed] == [False, True]


class Story:
    """A memory window on a GPU as torch's profiler reports it: rounded blocks, and a running total after each event."""

    def __init__(self, base: int) -> None:
        self.events: list[Event] = [Marked(MAIN, Mark(Point.BEGIN))]
        self.total = base
        self.sizes: dict[int, int] = {}

    def allocate(self, size: int, *, thread: int = MAIN, was_tensor: bool = True) -> int:
        address = next(ADDRESSES)
        self.sizes[address] = size
        self.total += size
        self.events.append(MemoryEvent(GPU, thread, address, size, self.total, was_tensor))
        return address

    def free(self, address: int, *, thread: int = MAIN, was_tensor: bool = True) -> None:
        size = self.sizes[address]
        self.total -= size
        self.events.append(MemoryEvent(GPU, thread, address, -size, self.total, was_tensor))

    def region(self, name: str, *, thread: int = MAIN, number: int = -1, parent: Region | None = None) -> "Inside":
        scope = Scope.USER if name.startswith("Optimizer") else Scope.FUNCTION
        return Inside(self, Region(name, scope, thread, len(self.events), 0, number, parent))

    def mark(self, point: Point, *owned: Owned) -> None:
        self.events.append(Marked(MAIN, Mark(point, name="net", owned=owned)))

    def trace(self) -> Trace:
        relate([event.region for event in self.events if isinstance(event, Enter)])
        mark_last_runs(self.events)
        return Trace(list(zip(itertools.count(), self.events)), True, 0)


class Inside:
    """A region that is open while the block runs."""

    def __init__(self, story: Story, region: Region) -> None:
        self.story, self.region = story, region

    def __enter__(self) -> Region:
        self.story.events.append(Enter(self.region))
        return self.region

    def __exit__(self, *_: object) -> None:
        self.story.events.append(Leave(self.region))


WEIGHT = Existing(GPU, next(ADDRESSES), 512, requested_bytes=40)
OWNED_WEIGHT = Owned(GPU, WEIGHT.address, 40, Role.WEIGHT, "fc.weight", (10,))


def training(steps: int = 4, *, unheard: int = 0) -> Story:
    """Steps of one layer: workspaces of two kinds, a map of 1024, and a gradient made on autograd's own thread."""
    story = Story(WEIGHT.bytes + unheard)
    for step in range(steps):
        story.mark(Point.FORWARD)
        with story.region("aten::cudnn_convolution", number=7):
            scratch = story.allocate(4096, was_tensor=False)
            story.free(scratch, was_tensor=False)
            output = story.allocate(1024)
        if step == 0:
            with story.region("aten::addmm", number=8):
                story.allocate(8192, was_tensor=False)  # cuBLAS keeps it
        node = story.region("autograd::engine::evaluate_function: ConvolutionBackward0", thread=AUTOGRAD)
        with node as outer, story.region("aten::convolution_backward", thread=AUTOGRAD, number=7, parent=outer):
            gradient = story.allocate(512, thread=AUTOGRAD)
            error = story.allocate(2048, thread=AUTOGRAD)
        story.free(error, thread=AUTOGRAD)
        story.free(output)
        with story.region("Optimizer.step#SGD.step"):
            story.mark(Point.UPDATE_BEGIN, Owned(GPU, gradient, 40, Role.GRADIENT, "fc.weight", (10,)))
        story.free(gradient)
        story.mark(Point.STEP, OWNED_WEIGHT)
    return story


def measured(story: Story, existing: tuple[Existing, ...] = (WEIGHT,)) -> Memory:
    strings = Strings()
    tables, marks, missing = build(story.trace(), existing, False, strings)
    assert missing == {}
    steps = [(at, at, at * 100, at * 100 + 100, 1.0, mark) for at, mark in enumerate(marks)]
    window = Window(0, "memory", "complete", {**tables, "step": table("step", steps)})
    memory = measure(Recording(run(device=GPU, parameters=(parameter("fc.weight", 10),)), [window], strings)).value
    assert memory is not None
    return memory


def test_categories_and_rounding_are_the_allocators_total_after_every_event() -> None:
    memory = measured(training())

    # Weight 40, the kept workspace 8192, the map 1024, gradient 40 and its error 2048; 2 × 472 are rounding.
    assert memory.independent_peak_bytes == memory.allocator_peak_bytes == 512 + 8192 + 4096 == 12800
    assert (memory.violations, memory.roles_at_peak[Role.UNKNOWN]) == ((), 0)
    at_peak = {role: size for role, size in memory.roles_at_peak.items() if size}
    assert at_peak == {Role.WEIGHT: 40, Role.WORKSPACE: 8192 + 4096}
    assert memory.rounding_at_peak_bytes == 472
    assert memory.roles_max[Role.GRADIENT] == 40  # an owner reports what was asked for
    assert memory.roles_max[Role.FEATURE_MAP] == 1024
    assert memory.roles_max[Role.GRADIENT_MAP] == 2048


def test_what_autograds_own_thread_allocates_lies_in_its_operators() -> None:
    strings = Strings()
    tables, _, _ = build(training(1).trace(), [WEIGHT], False, strings)
    spans = {int(row["id"]): row for row in tables["span"]}
    made = [row for row in tables["allocation"] if row["thread"] == AUTOGRAD and row["kind"] == 1]

    inside = [spans[int(row["span"])] for row in made]
    assert [strings[int(row["name"])] for row in inside] == ["aten::convolution_backward"] * 2
    assert {Phase(int(row["phase"])) for row in inside} == {Phase.BACKWARD}


@pytest.mark.parametrize(
    ("block_bytes", "owned_bytes", "requested_bytes"),
    [
        (512, 1, 1),
        (1024, 512, -1),
        (MIB, MIB - 511, MIB - 511),
        (MIB, MIB - 512, -1),  # of a small block all that is left is split off
        (12 * MIB, 11 * MIB, 11 * MIB),  # 2 MiB are the unit of large ones, and 1 MiB is not split off
        (12 * MIB, 11 * MIB - 511, 11 * MIB - 511),
        (12 * MIB, 11 * MIB - 512, -1),
    ],
)
def test_an_owner_reports_what_a_block_was_asked_for_with_where_the_allocator_would_leave_the_rest_unsplit(
    block_bytes: int, owned_bytes: int, requested_bytes: int
) -> None:
    story = Story(0)
    address = story.allocate(block_bytes)
    story.mark(Point.STEP, Owned(GPU, address, owned_bytes, Role.WEIGHT, "w", (owned_bytes,)))

    (row,) = build(story.trace(), [], False, Strings())[0]["allocation"]
    assert row["requested_bytes"] == requested_bytes


def planted() -> Iterator[tuple[str, Story, tuple[Existing, ...]]]:
    lost = training()
    made = [at for at, event in enumerate(lost.events) if isinstance(event, MemoryEvent) and event.bytes == 1024]
    del lost.events[made[1]]  # of a step that counts
    yield "a lost report", lost, (WEIGHT,)
    yield "a block nobody listed", training(unheard=4096), (WEIGHT,)
    yield "a block that is gone", training(), (WEIGHT, Existing(GPU, 1, 64, requested_bytes=64))


@pytest.mark.parametrize(("mistake", "story", "existing"), list(planted()), ids=[each[0] for each in planted()])
def test_a_planted_mistake_is_seen(mistake: str, story: Story, existing: tuple[Existing, ...]) -> None:
    memory = measured(story, existing)

    assert memory.mismatches or memory.roles_max[Role.UNKNOWN]
