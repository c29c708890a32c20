"""Memory planted in a plain loop lands where it belongs, to the byte."""

import pytest
from judges.holding import ITEM, assert_adds_up, assert_holds
from judges.process import Json, Run

KEPT = 1000 * ITEM
SEEN = 7  # of the loop's 8 steps: what the last one makes has outlived no step's end yet


def more_than_convnet(run: Run, loop: str) -> Json:
    """Return what a loop has at the peak beyond the same loop with nothing planted, role by role."""
    planted, plain = run("torch_planted", loop), run("torch_loops", "convnet")
    assert_holds(planted, arrays=1)
    before = plain.memory["roles_at_peak"]
    return {role: more for role, size in planted.memory["roles_at_peak"].items() if (more := size - before[role])}


def test_a_cache_that_grows_every_step_is_dynamic(run: Run) -> None:
    assert more_than_convnet(run, "cache") == {"dynamic": SEEN * KEPT}


def test_a_list_of_losses_is_dynamic(run: Run) -> None:
    assert more_than_convnet(run, "losses") == {"dynamic": SEEN * ITEM}


def test_an_averaged_copy_of_the_model_is_dynamic(run: Run) -> None:
    roles = run("torch_loops", "convnet").memory["roles_at_peak"]
    assert more_than_convnet(run, "average") == {"dynamic": roles["weight"] + roles["buffer"]}


def test_a_copy_averaged_anew_every_step_is_dynamic(run: Run) -> None:
    weights = run("torch_loops", "convnet").memory["roles_at_peak"]["weight"]
    assert more_than_convnet(run, "renewed_average") == {"dynamic": weights}


def test_a_tensor_of_another_thread_is_seen(run: Run) -> None:
    memory = run("torch_planted", "in_a_thread").memory
    assert memory["mismatches"] == memory["max_per_category"]["unknown"] == 0
    assert memory["independent_peak_bytes"] == memory["allocator_peak_bytes"]
    assert more_than_convnet(run, "in_a_thread") == {"dynamic": KEPT}


def test_a_tensor_of_a_thread_that_cannot_be_followed_is_unknown_and_shown(run: Run) -> None:
    outcome = run("torch_planted", "in_a_thread_that_cannot_join")
    memory = outcome.memory
    assert memory["mismatches"] == 0
    assert memory["at_peak"]["unknown"] == memory["max_per_category"]["unknown"] == KEPT
    total = memory["independent_peak_bytes"]
    assert memory["allocator_peak_bytes"] + KEPT == total
    assert sum(memory["at_peak"].values()) == sum(layer["bytes"] for layer in memory["by_layer"]) == total
    assert "4,000 bytes of the framework's total are not explained" in outcome.text
    line = next(line for line in outcome.text.splitlines() if line.startswith("unknown"))
    assert "3.91 KiB" in line


def test_a_buffer_made_and_dropped_within_an_operator_is_temporary(run: Run) -> None:
    memory = run("torch_planted", "scratch").memory
    assert_adds_up(memory)
    assert memory["roles_at_peak"]["temporary"] == memory["roles_max"]["temporary"] == (1 << 18) * ITEM


def test_a_convolutions_columns_are_workspace(run: Run) -> None:
    memory = run("torch_planted", "columns").memory
    assert_adds_up(memory)
    assert memory["roles_max"]["workspace"] == 16 * 3 * 3 * 32 * 32 * 8


@pytest.mark.parametrize("loop", ["convnet", "lstm_found"])
def test_the_librarys_scratch_buffers_are_workspace(run: Run, loop: str) -> None:
    assert run("torch_loops", loop).memory["roles_max"]["workspace"] > 0
