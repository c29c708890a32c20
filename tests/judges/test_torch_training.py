"""Real training loops in torch, each in its own process: the totals are torch's, the sizes are arithmetic."""

from typing import Any

import pytest
from judges.holding import ITEM, assert_adds_up, assert_holds, assert_sizes, trained_bytes
from judges.process import Outcome, Run

MOMENTUM: dict[str, Any] = {"arrays": 1}
ADAM: dict[str, Any] = {"arrays": 2, "counter_bytes": 4}
RMSPROP: dict[str, Any] = {"arrays": 1, "counter_bytes": 4}
IMAGES, LABELS = 4 * 3 * 16 * 16 * ITEM, 4 * 8


def phases_of(outcome: Outcome) -> set[str]:
    return {name for name, phase in outcome.report["time"]["phases"].items() if phase["busy_seconds"] > 0}


def test_a_convnets_memory_is_torchs_own_total_to_the_byte(run: Run) -> None:
    outcome = run("torch_loops", "convnet")
    assert_holds(outcome, **MOMENTUM)
    assert outcome.memory["roles_at_peak"]["input"] == IMAGES
    assert outcome.memory["roles_at_peak"]["dynamic"] == LABELS  # older than the loop, and no argument of the model


def test_batches_made_in_the_loop_are_inputs_with_their_labels(run: Run) -> None:
    outcome = run("torch_loops", "fresh_batches")
    assert_holds(outcome, **RMSPROP)
    assert outcome.memory["roles_at_peak"]["input"] == IMAGES + LABELS
    assert outcome.memory["roles_at_peak"]["dynamic"] == 0


def test_batches_of_a_workers_shared_memory_are_inputs_outside_of_the_allocator(run: Run) -> None:
    outcome, alone = run("torch_loops", "loaded_by_a_worker"), run("torch_loops", "loaded_in_process")
    assert_holds(alone, **MOMENTUM)
    assert_sizes(outcome, **MOMENTUM)
    memory = outcome.memory
    assert memory["mismatches"] == memory["roles_max"]["unknown"] == memory["roles_max"]["input"] == 0
    assert memory["independent_peak_bytes"] == memory["allocator_peak_bytes"] == sum(memory["at_peak"].values())
    assert memory["outside_allocator_bytes"] == 2 * (IMAGES + LABELS)  # the next one is there before the last one goes
    assert memory["outside_allocator_max"] == {"input": 2 * (IMAGES + LABELS)}
    assert alone.memory["roles_max"]["input"] == 2 * (IMAGES + LABELS)
    assert alone.memory["outside_allocator_max"] == {}
    assert not {"shared_memory"} & (set(outcome.report["missing"]) | set(alone.report["missing"]))


def test_a_loop_without_an_optimizer_has_gradients_phases_and_inputs(run: Run) -> None:
    outcome = run("torch_loops", "by_hand")
    assert_holds(outcome, arrays=0)
    assert outcome.memory["roles_at_peak"]["input"] == IMAGES + LABELS
    assert {"forward", "backward", "update"} <= phases_of(outcome)


def test_a_loop_without_a_module_has_weights_gradients_and_phases_all_the_same(run: Run) -> None:
    outcome = run("torch_loops", "without_a_module")
    assert_holds(outcome, arrays=0)
    assert outcome.memory["roles_at_peak"]["input"] == 4 * 32 * ITEM + 4 * 8
    assert {"forward", "backward", "update"} <= phases_of(outcome)
    assert outcome.report["run"]["flops_per_unit"]["samples"] == 2 * (2 * 32 * 10)  # the input needs no gradient


def test_a_sparse_matrix_that_is_older_than_the_loop_is_known(run: Run) -> None:
    outcome = run("torch_loops", "graph")
    assert_holds(outcome, **MOMENTUM)
    values, indices, labels = 4 * ITEM, 2 * 4 * 8, 4 * 8
    assert outcome.memory["roles_at_peak"]["dynamic"] == values + indices + labels


def test_gradients_that_are_kept_are_all_there_at_the_peak(run: Run) -> None:
    outcome = run("torch_loops", "gradients_kept")
    assert_holds(outcome, **ADAM)
    assert outcome.memory["roles_at_peak"]["gradient"] == trained_bytes(outcome.facts)


def test_accumulation_keeps_gradients_and_one_micro_batchs_maps(run: Run) -> None:
    outcome, alone = run("torch_loops", "accumulation"), run("torch_loops", "convnet")
    assert_holds(outcome, **MOMENTUM)
    assert outcome.memory["roles_at_peak"]["gradient"] == trained_bytes(outcome.facts)
    assert outcome.memory["roles_max"]["feature_map"] == alone.memory["roles_max"]["feature_map"]


def test_a_tied_embedding_counts_once(run: Run) -> None:
    outcome = run("torch_loops", "tied_transformer")
    assert_holds(outcome, **ADAM)
    attention, dense, norms = 4 * (32 * 32 + 32), 2 * 32 * 64 + 64 + 32, 4 * 32
    assert outcome.memory["roles_at_peak"]["weight"] == (64 * 32 + attention + dense + norms) * ITEM
    assert outcome.memory["roles_max"]["input"] == 4 * 12 * 8


def test_weights_that_share_one_storage_count_once(run: Run) -> None:
    assert_holds(run("torch_loops", "flat_weights"), **MOMENTUM)


def test_the_scratch_of_an_operators_worker_threads_is_workspace(run: Run) -> None:
    assert_holds(run("torch_loops", "flash_attention", threads=2), **ADAM)


@pytest.mark.parametrize("loop", ["checkpointed_reentrant", "checkpointed_not_reentrant"])
def test_checkpointed_maps_are_recomputed_and_not_kept(run: Run, loop: str) -> None:
    outcome = run("torch_loops", loop)
    assert_holds(outcome, **MOMENTUM)
    widest = 4 * 16 * 12 * 12 * ITEM
    assert outcome.memory["roles_max"]["recomputed"] > 2 * widest
    assert outcome.memory["at_optimizer_step"]["recomputed"] == 0


def test_autocast_copies_of_weights_are_weights(run: Run) -> None:
    outcome = run("torch_loops", "autocast")
    assert_holds(outcome, **ADAM)
    assert outcome.memory["roles_max"]["cast"] == trained_bytes(outcome.facts) // 2


def test_a_gans_two_models_and_two_optimizers_add_up(run: Run) -> None:
    assert_holds(run("torch_loops", "gan"), **ADAM)


def test_an_lstm_with_varying_lengths_is_found_and_adds_up(run: Run) -> None:
    assert_holds(run("torch_loops", "lstm_found"), **RMSPROP)


def test_a_second_profile_says_that_it_came_late_and_finds_the_same(run: Run) -> None:
    outcome = run("torch_loops", "profiled_twice")
    assert [report["run"]["complete"] for report in outcome.reports] == [True, True]
    first, second = (report["memory"] for report in outcome.reports)
    assert_adds_up(second)
    assert_sizes(outcome, **MOMENTUM)
    assert first["independent_peak_bytes"] == first["allocator_peak_bytes"]
    assert second["independent_peak_bytes"] is None
    assert "accounting began after torch had allocated" in outcome.report["missing"]["independent_peak_bytes"]
    assert second["roles_at_peak"] == first["roles_at_peak"]
    assert second["roles_max"] == first["roles_max"]


def test_evaluation_skipped_updates_and_an_early_end_still_add_up(run: Run) -> None:
    outcome = run("torch_loops", "odd_loop")
    assert_holds(outcome, complete=False, **ADAM)
    assert outcome.report["run"]["ended_by"] == "the loop ended first"
    assert outcome.memory["roles_at_peak"]["input"] == (1 + 3) * IMAGES + LABELS


def test_a_loop_that_raises_keeps_what_was_recorded(run: Run) -> None:
    outcome = run("torch_loops", "raising_loop")
    assert_holds(outcome, complete=False, **MOMENTUM)
    assert "to have 3 channels, but got 2" in outcome.facts["caught"]
    assert outcome.report["run"]["ended_by"] == "RuntimeError"
    assert outcome.report["run"]["steps"]["memory"] == 3


def test_what_processes_exchange_has_roles_and_its_bytes_are_arithmetic(run: Run) -> None:
    outcome = run("torch_distributed", "copies_and_shares")
    beside, within, shared = (report["memory"] for report in outcome.reports)
    trained = trained_bytes(outcome.facts)
    for memory in (beside, within, shared):
        assert_adds_up(memory)
    for memory in (beside, within):
        assert memory["roles_max"]["weight"] == memory["at_optimizer_step"]["gradient"] == trained
        assert memory["roles_max"]["optimizer_state"] == trained
    assert beside["independent_peak_bytes"] == beside["allocator_peak_bytes"]
    assert beside["roles_at_peak"]["communication"] == trained  # one bucket
    assert within["roles_max"]["communication"] == 0  # the bucket is the gradients' memory
    assert shared["roles_max"]["weight"] == shared["roles_max"]["optimizer_state"] == trained // 2
    assert shared["at_optimizer_step"]["gradient"] == trained // 2
    assert outcome.report["run"]["parameters"] * 2 == outcome.report["run"]["whole_parameters"] == trained // ITEM
    assert outcome.reports[0]["run"]["whole_parameters"] == trained // ITEM
    largest = (96 * 96 + 96) * ITEM  # the layers are gathered one by one
    assert shared["roles_max"]["gathered"] in range(largest, trained + 1)
    assert shared["roles_max"]["communication"] >= 2 * largest  # what is reduced, and gloo's copy of it
    sent = [report["time"]["communication"]["sent_bytes"] for report in outcome.reports]
    assert sent == [trained, trained, 3 * trained]  # FSDP2 gathers for forward and backward, and reduces


def test_a_cpu_is_not_busy_while_only_communication_runs(run: Run) -> None:
    for report in run("torch_distributed", "copies_and_shares").reports:
        idle, communication = report["time"]["idle"], report["time"]["communication"]
        assert idle["communication"] == communication["exposed"] > 0
        assert idle["total"] >= idle["communication"]
        parts = idle["communication"] + idle["launching"] + idle["data_wait"]
        assert abs(parts - idle["total"]) < 1e-6
