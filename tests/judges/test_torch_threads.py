"""Training by several threads of one process at once, in torch: each loop in its own process, judged by arithmetic."""

import numpy as np
import pytest
from judges.holding import ITEM, assert_adds_up, trained_bytes
from judges.process import Json, Outcome, Run

from tbdprof.analysis.memory.account import Account
from tbdprof.analysis.memory.accounting import account, of_device
from tbdprof.analysis.memory.breakdown import measure
from tbdprof.facts.file.reading import load
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import AllocationKind, Phase, Role, SpanKind
from tbdprof.facts.rows import Table

LOOPS = ("together", "three_large", "paused")
BATCH_BYTES = 6 * 40 * ITEM + 6 * 8  # inputs and labels of one thread
PLANTED = {4 * 1000, 4 * 3000}


def assert_holds(outcome: Outcome) -> None:
    """Assert what holds of several threads: each has weights, gradients and momentum, and all add up."""
    memory, trained = outcome.memory, trained_bytes(outcome.facts)
    assert_adds_up(memory)
    assert memory["independent_peak_bytes"] == memory["allocator_peak_bytes"]
    for roles in (memory["roles_at_peak"], memory["roles_max"], memory["at_optimizer_step"]):
        assert roles["weight"] == roles["optimizer_state"] == trained
    # Where one updates, others may have both the gradient that is kept and the one to be added to it.
    assert trained <= memory["at_optimizer_step"]["gradient"] <= 2 * trained


def test_what_two_threads_hold_at_once_is_reported_of_both(run: Run) -> None:
    """Between the passes each holds inputs and labels, what linear and ReLU made, logarithms and the loss's weight."""
    maps = sum(6 * hidden + 6 * hidden + 2 * 6 * 10 + 2 for hidden in (32, 48)) * ITEM
    roles = run("torch_threads", "together").memory["roles_max"]
    assert roles["feature_map"] <= maps
    assert roles["feature_map"] > sum(6 * hidden for hidden in (32, 48)) * ITEM


@pytest.mark.parametrize("loop", LOOPS)
def test_what_several_threads_allocate_adds_up_to_torchs_own_total(run: Run, loop: str) -> None:
    assert_holds(run("torch_threads", loop))


def test_busy_time_is_a_union_and_phases_add_up_to_the_step(run: Run) -> None:
    report = run("torch_threads", "three_large").report
    time, use = report["time"], report["utilization"]
    assert 0 < use["device_busy"]["in_window"] <= 1
    assert sum(phase["seconds"] for phase in time["phases"].values()) == pytest.approx(time["step_s"])
    for phase in time["phases"].values():
        assert phase["busy_seconds"] <= phase["seconds"] * (1 + 1e-9)


def threads_of(window: Window) -> list[Table]:
    """Return the spans of each thread that updates weights."""
    spans = window.table("span")
    updates = spans[(spans["phase"] == Phase.UPDATE) & (spans["kind"] == SpanKind.PHASE)]
    return [spans[spans["thread"] == thread] for thread in np.unique(updates["thread"])]


@pytest.mark.parametrize("kind", ["memory", "kernels"])
def test_spans_of_threads_do_not_mix(run: Run, kind: str) -> None:
    recording = load(run("torch_threads", "together").recording)
    (window,) = recording.named(kind)
    spans = window.table("span")
    by_id = {int(row["id"]): row for row in spans}
    for row in spans[spans["parent"] >= 0]:
        around = by_id[int(row["parent"])]
        assert around["thread"] == row["thread"]
        assert around["start_ns"] <= row["start_ns"]
        assert row["end_ns"] <= around["end_ns"]
    names = [{recording.strings[i].partition(".")[0] for i in layers(each)["name"]} for each in threads_of(window)]
    assert sorted(map(sorted, names)) == [["sequential0"], ["sequential1"]]


def layers(spans: Table) -> Table:
    found: Table = spans[spans["kind"] == SpanKind.LAYER]
    return found


def test_backward_finds_the_forward_operators_of_its_own_thread(run: Run) -> None:
    recording = load(run("torch_threads", "together").recording)
    (window,) = recording.named("kernels")
    spans = window.table("span")
    made = spans[(spans["forward"] >= 0) & (spans["phase"] == Phase.FORWARD)]
    owner = dict(zip(made["forward"].tolist(), made["thread"].tolist(), strict=True))
    back = spans[(spans["forward"] >= 0) & (spans["phase"] == Phase.BACKWARD)]
    found = [(owner[int(row["forward"])], row["thread"]) for row in back if int(row["forward"]) in owner]
    assert len(found) > len(back) // 2
    assert all(forward == backward for forward, backward in found)


def worked(run: Run, loop: str) -> Account:
    recording = load(run("torch_threads", loop).recording)
    (window,) = recording.named("memory")
    return account(recording, of_device(recording, window))


def test_planted_tensors_are_their_threads_and_kept(run: Run) -> None:
    found = worked(run, "together")
    threads = {}
    for size in PLANTED:
        mine = np.flatnonzero((found.blocks.size_bytes == size) & (found.blocks.thread >= 0))
        (threads[size],) = np.unique(found.blocks.thread[mine]).tolist()
        old = mine[found.blocks.start[mine] < found.marks[len(found.marks) // 2]]
        assert set(found.roles[mine].tolist()) <= {Role.DYNAMIC, Role.INPUT}  # one just made may be the next batch
        assert Role.DYNAMIC in found.roles[old]
    assert len(set(threads.values())) == len(PLANTED)


def test_threads_that_never_pause_lose_no_update(run: Run) -> None:
    outcome = run("torch_threads", "many")
    assert outcome.report["run"]["complete"]
    assert sum(outcome.report["run"]["steps"].values()) == outcome.facts["updates"] > 300
    assert outcome.memory["mismatches"] == 0
    assert outcome.memory["independent_peak_bytes"] == outcome.memory["allocator_peak_bytes"]


def test_weights_that_threads_share_count_once(run: Run) -> None:
    memory, facts = run("torch_threads", "shared").memory, run("torch_threads", "shared").facts
    assert_adds_up(memory)
    assert memory["roles_max"]["weight"] == trained_bytes(facts) // 3
    assert memory["roles_max"]["optimizer_state"] == trained_bytes(facts)


def test_an_interrupt_passes_through_and_what_was_recorded_is_kept(run: Run) -> None:
    outcome = run("torch_threads", "interrupted")
    assert outcome.facts["caught"] == outcome.report["run"]["ended_by"] == "KeyboardInterrupt"
    assert outcome.report["run"]["steps"]["memory"] >= 10
    assert_adds_up(outcome.memory)


def test_a_thread_that_stays_in_an_operator_costs_the_memory_window_alone(run: Run) -> None:
    report = run("torch_threads", "stuck").report
    assert "inside an operator" in report["missing"]["memory"]
    assert report["run"]["complete"]
    assert report["utilization"]["device_busy"]["in_window"] > 0


@pytest.fixture
def recording(run: Run) -> Recording:
    return load(run("torch_threads", "together").recording)


def tampered(recording: Recording, kind: str, rows: Table) -> Json:
    (window,) = recording.named("memory")
    window.tables[kind] = rows
    memory = measure(recording).value
    assert memory is not None
    return {"mismatches": memory.mismatches, "unknown": memory.roles_max[Role.UNKNOWN], "roles": memory.roles_max}


def test_one_threads_events_left_out_are_unknown(recording: Recording) -> None:
    (window,) = recording.named("memory")
    rows = window.table("allocation")
    trainers = np.unique(rows["thread"][rows["kind"] == AllocationKind.ALLOCATED])
    lost = tampered(recording, "allocation", rows[rows["thread"] != trainers[-1]])
    assert lost["unknown"] > BATCH_BYTES or lost["mismatches"] > 0


def test_one_threads_events_in_another_order_do_not_add_up(recording: Recording) -> None:
    (window,) = recording.named("memory")
    rows = window.table("allocation").copy()
    trainers = np.unique(rows["thread"][rows["kind"] == AllocationKind.ALLOCATED])
    rows["sequence"][rows["thread"] == trainers[-1]] += 40
    lost = tampered(recording, "allocation", rows)
    assert lost["unknown"] > 0
    assert lost["mismatches"] > 0


def test_threads_taken_for_one_are_seen(recording: Recording) -> None:
    """Merged, the turns of all are one's: what lives through a turn of its own seems kept."""
    (window,) = recording.named("memory")
    apart = measure(recording).value
    assert apart is not None
    for kind in ("span", "allocation"):
        rows = window.table(kind).copy()
        rows["thread"] = 1
        merged = tampered(recording, kind, rows)
    assert merged["roles"] != dict(apart.roles_max)
