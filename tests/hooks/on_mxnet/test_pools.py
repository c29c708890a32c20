"""What MXNet's pools make of sizes, and what they hold, on objects laid out as MXNet 1.9.1 lays them out."""

import ctypes
import importlib.util
from collections.abc import Callable

import pytest

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("mxnet is not installed", allow_module_level=True)

import numpy as np

vars(np).setdefault("bool", bool)  # MXNet reads it

from tbdprof.collect.gpu import context  # noqa: E402
from tbdprof.errors import UnavailableError  # noqa: E402
from tbdprof.facts.counters import ALLOCATOR_ALLOCATED, ALLOCATOR_RESERVED  # noqa: E402
from tbdprof.hooks import about  # noqa: E402
from tbdprof.hooks.on_mxnet.memory import device_memory, pools  # noqa: E402
from tbdprof.hooks.on_mxnet.memory.blocks import Level  # noqa: E402
from tbdprof.hooks.on_mxnet.session import layout  # noqa: E402

MIB = 1 << 20
GPU = layout.device_number(layout.GPU, 0)
NAIVE = b"N5mxnet7storage23GPUPooledStorageManagerE"
ROUNDED = b"N5mxnet7storage30GPUPooledRoundedStorageManagerE"
UNPOOLED = b"N5mxnet7storage19NaiveStorageManagerINS0_16GPUDeviceStorageEEE"
_KEPT: list[object] = []


def words(*values: int) -> int:
    """Return the address of some words."""
    made = (ctypes.c_size_t * len(values))(*values)
    _KEPT.append(made)
    return ctypes.addressof(made)


def manager(name: bytes, *members: int) -> int:
    """Return the address of an object of a class of this name."""
    text = ctypes.create_string_buffer(name)
    _KEPT.append(text)
    described = words(0, ctypes.addressof(text))
    return words(words(described, 0) + 8, *members)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[..., pools.Pool | None]:
    """Return what finds the pool of a GPU that has a manager, in a storage object whose profiler is in its place."""

    def find(made: int, index: int = 0, profiler_at: int = 2384) -> pools.Pool | None:
        storage = [0] * (2384 // 8)
        storage[(88 + 2 * 328 + 40 + 16 * index) // 8] = made
        address = words(*storage)
        monkeypatch.setattr(layout, "function", lambda _symbol: lambda: address)
        return pools.find(address + profiler_at, layout.device_number(layout.GPU, index))

    return find


@pytest.mark.parametrize(
    ("size", "taken"),
    [(1, 4096), (4096, 4096), (4097, 8192), (2 * MIB, 2 * MIB), (2 * MIB + 1, 4 * MIB), (4_000_000, 4 * MIB)],
)
def test_the_usual_pool_takes_whole_pages_and_of_large_blocks_whole_multiples_of_two_megabytes(
    found: Callable[..., pools.Pool], size: int, taken: int
) -> None:
    assert found(manager(NAIVE, 77, 4096, 2 * MIB)).allocated_bytes(size) == taken


@pytest.mark.parametrize(
    ("size", "taken"),
    [
        (1, 4096),
        (4097, 8192),
        (4_000_000, 4 * MIB),
        (16 * MIB, 16 * MIB),
        (16 * MIB + 1, 32 * MIB),
        (40 * MIB, 48 * MIB),
    ],
)
def test_the_pool_of_rounded_sizes_takes_powers_of_two_and_above_a_limit_whole_multiples_of_it(
    found: Callable[..., pools.Pool], size: int, taken: int
) -> None:
    assert found(manager(ROUNDED, 32, 34, 77, 12, 24), index=1).allocated_bytes(size) == taken


def test_each_kind_of_pool_shows_what_it_holds(found: Callable[..., pools.Pool]) -> None:
    assert found(manager(NAIVE, 77, 4096, 2 * MIB)).held_bytes() == 77
    assert found(manager(ROUNDED, 32, 34, 99, 12, 24)).held_bytes() == 99
    assert found(manager(UNPOOLED)).held_bytes() is None
    assert found(manager(UNPOOLED)).allocated_bytes(4097) == 4097


def test_another_layout_another_class_and_no_manager_are_no_pool(found: Callable[..., pools.Pool | None]) -> None:
    assert found(manager(NAIVE, 77, 4096, 2 * MIB), profiler_at=2392) is None
    assert found(manager(b"N5mxnet7storage7AnotherE", 77, 4096, 2 * MIB)) is None
    assert found(0) is None
    assert found(words(words(0, 0) + 8)) is None  # made by a compiler that leaves no names


def test_a_storage_that_the_build_hides_has_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_STORAGE", "_ZN5mxnet7Storage6HiddenEv")

    assert pools.find(1 << 20, GPU) is None


class Watched:
    """An allocator that has seen one device, with a pool that holds so much."""

    def __init__(self, in_use: int, held: int | None, *, known: bool = True) -> None:
        self.levels = {GPU: Level(in_use, in_use)}
        self._pool = pools.Pool(lambda size: size, lambda: held) if known else None

    def pool(self, _device: int) -> pools.Pool | None:
        return self._pool


@pytest.mark.parametrize(("held", "expected"), [(500, 500), (300, 300), (None, 300)])
def test_a_pool_holds_what_is_in_use_and_its_cache(held: int | None, expected: int) -> None:
    assert device_memory.held_bytes(Watched(300, held), GPU) == expected


@pytest.mark.parametrize(
    ("watched", "reason"),
    [(Watched(300, 299), "holds 299 bytes, less than the 300"), (Watched(300, 500, known=False), "unknown kind")],
)
def test_a_pool_that_holds_less_than_is_in_use_or_is_unknown_is_a_reason(
    watched: Watched, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_memory.mx.context, "gpu_memory_info", lambda _index: (7, 9))

    with pytest.raises(UnavailableError, match=reason):
        device_memory.held_bytes(watched, GPU)

    read, reported = device_memory.read(watched, "cuda:0")
    assert ALLOCATOR_RESERVED not in read
    assert ALLOCATOR_ALLOCATED not in read
    assert reported is not None
    assert reason in reported


def test_a_cpu_and_a_device_that_nothing_lies_on_have_no_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory.mx.context, "gpu_memory_info", lambda _index: (7, 9))

    assert device_memory.read(Watched(300, 500), "cpu") == ({}, None)
    assert device_memory.read(Watched(300, 500), "cuda:1") == ({"device_free_bytes": 7}, None)


def test_a_level_is_a_sum_of_what_was_taken_and_keeps_its_peak() -> None:
    level = Level()
    level.add(100, 128, 1)
    level.add(50, -1, 1)  # of no known pool
    level.add(100, 128, -1)

    assert (level.now_bytes, level.peak_bytes, level.rounding_bytes) == (50, 178, 0)


def test_mxnets_libraries_are_measured_by_its_own_module() -> None:
    def ask(module: str, _index: object, _limit_s: float) -> dict[str, int | None]:
        after = {"tbdprof.collect.gpu.context": 600, "tbdprof.hooks.on_mxnet.context": 1000}[module]
        return {"total": 9000, "before": 100, "after": after, "process": None, "others": None, "held": 0}

    assert context.measure(0, "mxnet", about("mxnet").context, ask).libraries_bytes == 400
