"""Training by two threads at once, in MXNet, which do not wait for each other: judged by arithmetic."""

import pytest
from judges.holding import ITEM, assert_adds_up, trained_bytes
from judges.process import Run

BATCH, WIDTH = 6, 40  # as in judges.mxnet_threads, which imports MXNet


def test_what_two_threads_allocate_adds_up_to_mxnets_own_counter(run: Run) -> None:
    outcome = run("mxnet_threads", "two_free")
    memory, trained = outcome.memory, trained_bytes(outcome.facts)
    assert outcome.report["run"]["complete"]
    assert_adds_up(memory)
    assert memory["independent_peak_bytes"] == memory["allocator_peak_bytes"]
    for roles in (memory["roles_at_peak"], memory["roles_max"], memory["at_optimizer_step"]):
        assert roles["weight"] == roles["gradient"] == roles["optimizer_state"] == trained


def test_in_the_memory_window_the_threads_take_turns_so_that_each_block_has_its_phase(run: Run) -> None:
    outcome = run("mxnet_threads", "two_free")
    assert "phases" not in outcome.report["missing"]
    widest = 6 * 48 * ITEM  # what the wider network makes between its layers
    assert outcome.memory["roles_max"]["feature_map"] >= widest
    assert outcome.memory["roles_max"]["gradient_map"] >= widest
    # A thread may make its next batch before the main thread marks the end of the step: such a batch is dynamic.
    batches = 2 * 2 * BATCH * (WIDTH + 1) * ITEM  # two a thread: the one in use, and the next
    assert outcome.memory["roles_max"]["dynamic"] < widest + batches


def test_busy_time_of_two_threads_is_a_union(run: Run) -> None:
    report = run("mxnet_threads", "two_free").report
    assert 0 < report["utilization"]["device_busy"]["in_window"] <= 1
    phases = report["time"]["phases"].values()
    assert sum(phase["seconds"] for phase in phases) == pytest.approx(report["time"]["step_s"])
