"""Training by two threads at once, in TensorFlow, which do not wait for each other: judged by arithmetic."""

import pytest
from judges.holding import ITEM, trained_bytes
from judges.process import Run


def test_what_two_threads_allocate_adds_up_to_tensorflows_own_total(run: Run) -> None:
    outcome = run("tensorflow_threads", "two_free")
    memory, trained = outcome.memory, trained_bytes(outcome.facts)
    assert outcome.report["run"]["complete"]
    assert memory["mismatches"] == 0, memory["violations"]
    assert memory["roles_max"]["unknown"] == 0
    assert sum(memory["at_peak"].values()) == memory["allocator_peak_bytes"]
    assert memory["independent_peak_bytes"] == memory["allocator_peak_bytes"]
    # An assignment to a variable makes a copy for the moment of the change; other threads change theirs meanwhile.
    for role in ("weight", "optimizer_state"):
        assert trained <= memory["at_optimizer_step"][role] <= 2 * trained


def test_each_thread_has_its_phases(run: Run) -> None:
    memory = run("tensorflow_threads", "two_free").memory
    widest = 6 * 48 * ITEM
    assert memory["roles_max"]["feature_map"] >= widest
    assert memory["roles_max"]["gradient_map"] >= 6 * 32 * ITEM
    assert memory["roles_max"]["gradient"] > 0


def test_busy_time_of_two_threads_is_a_union(run: Run) -> None:
    report = run("tensorflow_threads", "two_free").report
    assert 0 < report["utilization"]["device_busy"]["in_window"] <= 1
    phases = report["time"]["phases"].values()
    assert sum(phase["seconds"] for phase in phases) == pytest.approx(report["time"]["step_s"])
