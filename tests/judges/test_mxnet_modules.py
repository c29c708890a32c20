"""MXNet's modules, loops without a trainer, several devices: each in its own process, the sizes are arithmetic."""

import pytest
from judges.holding import ITEM, assert_adds_up, assert_holds, trained_bytes
from judges.process import Outcome, Run, run_python

CONVNET_FLOPS = 2 * (8 * 9 * 10 * 10) * 2 + 2 * (8 * 5 * 5 * 10) * 3  # the images need no gradient
RATINGS, ROW = 8, 6 * ITEM + 8  # the rows of a batch, each with its values and its index


def layers(outcome: Outcome, table: str) -> set[str]:
    return {row["layer"] for row in outcome.report[table]["by_layer"] if row["layer"]}


def test_a_module_is_a_model_and_its_trainer(run: Run) -> None:
    outcome = run("mxnet_modules", "mnist")
    assert_holds(outcome, arrays=1)
    assert outcome.report["run"]["flops_per_sample"] == CONVNET_FLOPS
    assert outcome.memory["roles_at_peak"]["planned"] > 0
    assert {"conv1", "bn1", "fc1"} <= layers(outcome, "memory")
    assert {row["name"] for row in outcome.memory["top_at_peak"]} > {"conv1_weight", "fc1_weight"}


def test_a_module_trains_to_the_same_bits_without_tbdprof(run: Run) -> None:
    watched = run("mxnet_modules", "mnist").facts
    alone = run_python("mxnet", ["-m", "judges.mxnet_modules", str(watched["steps"])])
    assert alone["digest"] == watched["digest"]


def test_the_buckets_of_a_bucketing_module_share_their_weights(run: Run) -> None:
    outcome = run("mxnet_modules", "bucketing")
    assert_holds(outcome, arrays=2)
    assert {"embed", "lstm_i2h", "lstm_h2h", "pred"} <= layers(outcome, "memory")


def test_matrix_factorization_adds_up(run: Run) -> None:
    assert_holds(run("mxnet_modules", "factorization"), arrays=1)


def test_row_sparse_gradients_are_values_and_indices(run: Run) -> None:
    outcome = run("mxnet_modules", "sparse_factorization")
    assert_adds_up(outcome.memory)
    assert outcome.memory["independent_peak_bytes"] == outcome.memory["allocator_peak_bytes"]
    assert outcome.memory["roles_max"]["weight"] == trained_bytes(outcome.facts)
    assert outcome.memory["at_optimizer_step"]["gradient"] == 2 * RATINGS * ROW


@pytest.mark.parametrize(("loop", "copies"), [("on_two_devices", 3), ("gluon_on_two_devices", 3)])
def test_two_devices_add_up(run: Run, loop: str, copies: int) -> None:
    """Each device has its copy of the weights, and the store through which they exchange gradients has one, too."""
    outcome = run("mxnet_modules", loop)
    trained, memory = trained_bytes(outcome.facts), outcome.memory
    assert_adds_up(memory)
    assert memory["independent_peak_bytes"] == memory["allocator_peak_bytes"]
    assert memory["roles_at_peak"]["weight"] == copies * trained
    assert memory["at_optimizer_step"]["gradient"] == 2 * trained
    assert memory["roles_at_peak"]["optimizer_state"] == trained
    assert outcome.report["run"]["parameters"] * ITEM == trained
    devices = {row["device"]: row for row in memory["by_device"]}
    assert devices.keys() == {"cpu", "cpu:1", "pinned"}
    assert sum(row["bytes"] for row in devices.values()) == memory["allocator_peak_bytes"]
    assert devices["cpu:1"]["weight_gradients"] == trained


def test_weights_updated_by_hand_have_gradients_and_an_update(run: Run) -> None:
    outcome = run("mxnet_modules", "by_hand")
    assert_holds(outcome, arrays=0)
    phases = outcome.report["time"]["phases"]
    assert all(phases[name]["busy_seconds"] > 0 for name in ("forward", "backward", "update"))
