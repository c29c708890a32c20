"""A recording of a real run, tampered with: every mistake a hook could make must be seen."""

from collections.abc import Callable

import numpy as np
import pytest
from judges.process import Run

from tbdprof.analysis.memory.breakdown import measure
from tbdprof.facts.file.reading import load
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import AllocationKind, Role
from tbdprof.facts.rows import Table
from tbdprof.results.memory import Memory

LARGEST = 65536  # bytes of the loop's largest block
AT_PEAK = 12544  # bytes of a gradient map that lives at the peak


@pytest.fixture
def recording(run: Run) -> Recording:
    return load(run("torch_loops", "convnet").recording)


def tampered(recording: Recording, kind: str, change: Callable[[Table, Window], Table]) -> Memory:
    """Measure a recording with one table of its memory window changed."""
    (window,) = recording.named("memory")
    window.tables[kind] = change(window.table(kind).copy(), window)
    memory = measure(recording).value
    assert memory is not None
    return memory


def in_counted_steps(rows: Table, window: Window) -> np.ndarray:
    marks = np.sort(window.table("step")["last_sequence"])
    return (rows["sequence"] > marks[0]) & (rows["sequence"] < marks[-1])


def largest(rows: Table, window: Window, kind: AllocationKind) -> int:
    """Return the row of the largest event of a kind that counts."""
    wanted = in_counted_steps(rows, window) & (rows["kind"] == kind)
    return int(np.argmax(np.where(wanted, rows["allocated_bytes"], -1)))


def last_owner(rows: Table, role: Role) -> int:
    return int(np.flatnonzero(rows["role"] == role)[-1])


def test_the_recording_itself_is_without_fault(recording: Recording) -> None:
    memory = measure(recording).value
    assert memory is not None
    assert memory.mismatches == 0
    assert memory.roles_max[Role.UNKNOWN] == 0


def test_a_dropped_allocation_is_unknown_in_full(recording: Recording) -> None:
    def drop(rows: Table, window: Window) -> Table:
        return np.delete(rows, largest(rows, window, AllocationKind.ALLOCATED))

    assert tampered(recording, "allocation", drop).roles_max[Role.UNKNOWN] == LARGEST


def test_blocks_dropped_with_their_frees_do_not_add_up_to_the_frameworks_total(recording: Recording) -> None:
    def drop(rows: Table, window: Window) -> Table:
        return rows[(rows["allocated_bytes"] != AT_PEAK) | ~in_counted_steps(rows, window)]

    memory = tampered(recording, "allocation", drop)
    assert memory.independent_peak_bytes is not None
    assert memory.allocator_peak_bytes < memory.independent_peak_bytes == sum(memory.roles_at_peak.values())
    assert memory.roles_at_peak[Role.UNKNOWN] == AT_PEAK


def test_a_dropped_free_is_a_mismatch(recording: Recording) -> None:
    def drop(rows: Table, window: Window) -> Table:
        return np.delete(rows, largest(rows, window, AllocationKind.FREED))

    assert tampered(recording, "allocation", drop).mismatches > 0


def test_an_allocation_of_the_wrong_size_is_seen(recording: Recording) -> None:
    def shrink(rows: Table, window: Window) -> Table:
        place = largest(rows, window, AllocationKind.ALLOCATED)
        rows["requested_bytes"][place] -= 64
        rows["allocated_bytes"][place] -= 64
        return rows

    memory = tampered(recording, "allocation", shrink)
    assert memory.roles_max[Role.UNKNOWN] == 64
    assert memory.violations == ("1 frees of another size than was allocated",)


def test_a_total_that_drifts_is_seen(recording: Recording) -> None:
    def drift(rows: Table, window: Window) -> Table:
        rows["total_bytes"][in_counted_steps(rows, window)] -= 8
        return rows

    assert tampered(recording, "allocation", drift).mismatches > 0


@pytest.mark.parametrize("role", [Role.WEIGHT, Role.BUFFER, Role.GRADIENT, Role.OPTIMIZER_STATE])
def test_an_owner_of_the_wrong_size_is_seen(recording: Recording, role: Role) -> None:
    def grow(rows: Table, window: Window) -> Table:
        rows["bytes"][last_owner(rows, role)] += 4
        return rows

    assert tampered(recording, "owner", grow).mismatches > 0


def test_an_owner_larger_than_its_block_is_seen(recording: Recording) -> None:
    def grow(rows: Table, window: Window) -> Table:
        rows["bytes"][last_owner(rows, Role.INPUT)] *= 2
        return rows

    assert tampered(recording, "owner", grow).mismatches > 0


@pytest.mark.parametrize(
    ("role", "mistaken"),
    [(Role.GRADIENT, Role.WEIGHT), (Role.OPTIMIZER_STATE, Role.WEIGHT), (Role.WEIGHT, Role.BUFFER)],
)
def test_a_block_under_the_wrong_role_is_seen(recording: Recording, role: Role, mistaken: Role) -> None:
    def mislabel(rows: Table, window: Window) -> Table:
        address = rows["address"][last_owner(rows, role)]
        rows["role"][(rows["address"] == address) & (rows["role"] == role)] = mistaken
        return rows

    assert tampered(recording, "owner", mislabel).mismatches > 0


def test_an_owner_at_another_blocks_address_is_seen(recording: Recording) -> None:
    def move(rows: Table, window: Window) -> Table:
        weights = np.flatnonzero(rows["role"] == Role.WEIGHT)
        state = np.flatnonzero(rows["role"] == Role.OPTIMIZER_STATE)
        rows["address"][weights[0]] = rows["address"][state[np.argmax(rows["bytes"][state])]]
        return rows

    assert tampered(recording, "owner", move).mismatches > 0
