"""Real training loops in MXNet, each in its own process: the totals are MXNet's, the sizes are arithmetic."""

from judges.holding import ITEM, assert_adds_up, assert_holds, assert_sizes
from judges.process import Run

IMAGES, LABELS = 4 * 3 * 16 * 16 * ITEM, 4 * 4
KEPT = 1000 * ITEM
SEEN = 7  # of the loop's 8 steps: what the last one makes has outlived no step's end yet


def test_a_hybridized_nets_memory_is_mxnets_own_total_to_the_byte(run: Run) -> None:
    outcome = run("mxnet_loops", "hybridized")
    assert_holds(outcome, arrays=1)
    assert outcome.memory["roles_at_peak"]["input"] == IMAGES + LABELS
    assert outcome.memory["roles_max"]["dynamic"] == 0
    assert outcome.memory["roles_max"]["planned"] == 0
    assert outcome.memory["roles_max"]["workspace"] > 0


def test_a_net_run_operator_by_operator_keeps_two_arrays_for_adam(run: Run) -> None:
    assert_holds(run("mxnet_loops", "not_hybridized"), arrays=2)


def test_arrays_with_a_gradient_are_the_weights_of_a_script_without_blocks(run: Run) -> None:
    outcome = run("mxnet_loops", "without_a_block")
    assert_holds(outcome, arrays=0)
    assert outcome.report["time"]["phases"]["update"]["busy_seconds"] > 0


def test_a_planned_pool_is_shown_as_such_and_holds_the_maps(run: Run) -> None:
    outcome, unplanned = run("mxnet_loops", "static_alloc"), run("mxnet_loops", "hybridized")
    assert_holds(outcome, arrays=1)
    roles = outcome.memory["roles_at_peak"]
    assert roles["planned"] == outcome.memory["at_optimizer_step"]["planned"] > 100_000
    assert roles["feature_map"] + roles["gradient_map"] < 1000 < unplanned.memory["roles_at_peak"]["feature_map"]
    assert "planned" in outcome.text


def test_a_gans_two_nets_and_two_trainers_add_up(run: Run) -> None:
    assert_holds(run("mxnet_loops", "gan"), arrays=2)


def test_net_and_trainer_are_found_and_add_up(run: Run) -> None:
    assert_holds(run("mxnet_loops", "found"), arrays=2)


def test_a_cache_that_grows_every_step_is_dynamic(run: Run) -> None:
    outcome = run("mxnet_loops", "planted_cache")
    assert_holds(outcome, arrays=1)
    assert outcome.memory["roles_at_peak"]["dynamic"] == SEEN * KEPT


def test_an_averaged_copy_of_the_weights_is_dynamic(run: Run) -> None:
    outcome = run("mxnet_loops", "planted_average")
    assert_holds(outcome, arrays=1)
    assert outcome.memory["roles_at_peak"]["dynamic"] == outcome.memory["roles_at_peak"]["weight"]


def test_a_second_profile_says_that_it_came_late_and_has_the_same_weights(run: Run) -> None:
    outcome = run("mxnet_loops", "profiled_twice")
    first, second = (report["memory"] for report in outcome.reports)
    assert_adds_up(first)
    assert_sizes(outcome, arrays=1)
    assert second["mismatches"] == second["roles_max"]["unknown"] == 0
    assert second["independent_peak_bytes"] is None
    assert "counting began after MXNet had allocated" in outcome.report["missing"]["independent_peak_bytes"]


def test_a_second_profile_has_the_same_workspace(run: Run) -> None:
    first, second = (report["memory"] for report in run("mxnet_loops", "profiled_twice").reports)
    assert second["outside_allocator_bytes"] == 0
    assert second["roles_max"]["workspace"] == first["roles_max"]["workspace"]
