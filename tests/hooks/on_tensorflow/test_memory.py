"""What the TensorFlow hook reports of memory, to the byte: one process trains a small net in several ways."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("needs tensorflow", allow_module_level=True)

ROOT = Path(__file__).parents[3]
ITERATION, RATE = 8, 4  # the counter and the rate that a Keras optimizer keeps once
LOOPS = ("momentum", "plain", "adam", "eager", "fit", "cache", "map", "mirrored", "compiled", "mixed")
PER_STEP = 5  # calls of Python with which an unchanged script's steps are counted
Json = dict[str, Any]
Results = Callable[[str], Json]


@pytest.fixture(scope="module")
def results() -> Results:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{ROOT / 'tests' / 'support'}",
        "OMP_NUM_THREADS": "1",
    }
    script = Path(__file__).with_name("memory_scenarios.py")
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    printed = json.loads(done.stdout)
    return lambda name: printed[name]


@pytest.mark.parametrize("loop", LOOPS)
def test_nothing_contradicts_itself_and_every_loops_arithmetic_holds(results: Results, loop: str) -> None:
    facts = results(loop)
    assert (facts["violations"], facts["mismatches"], facts["missing"]) == ([], 0, {})
    assert facts["steps"] == 4
    assert facts["largest"]["WEIGHT"] >= facts["parameters"]["trained"]


def test_after_every_event_all_of_the_allocators_total_is_known(results: Results) -> None:
    facts = results("momentum")
    assert facts["watched_since"] == "before the first allocation"
    assert facts["independent_total"] is None
    assert facts["largest"]["UNKNOWN"] == 0
    assert facts["peak"] == facts["independent_peak"] <= facts["whole_run_peak"]


def test_joined_late_the_report_names_both_ways_to_count_from_the_first_allocation(results: Results) -> None:
    reason = results("plain")["independent_total"]
    assert "`tbdprof run`" in reason
    assert '`tbdprof.prepare("tensorflow")`' in reason


def test_a_fit_that_raises_leaves_no_profiler_once_the_error_is_gone_or_another_begins(results: Results) -> None:
    facts = results("raised")
    assert facts["raised"] == "KeyError(2)"
    assert facts["active"] == [True, False, False]  # the first error is kept, and so is its fit
    assert facts["ended_by"] == 2 * ["the loop ended first"]
    assert facts["steps"] == [3, 3]  # what raises is called after the profiler's callback
    assert facts["restored"] is True


def test_outside_windows_a_step_calls_nothing_of_tbdprofs_but_what_counts_the_steps(results: Results) -> None:
    facts = results("outside windows")
    calls = {name: len(each) for name, each in facts["calls"].items()}
    assert calls["eager"] == calls["traced"] == calls["eager after it"] == calls["traced after it"] == 0, facts["calls"]
    assert calls["eager in a window"] > 0  # what is counted is what a window calls
    assert 0 < calls["traced, counting steps"] <= PER_STEP, facts["calls"]


def test_a_function_is_noted_as_it_is_traced_between_windows_and_is_traced_once(results: Results) -> None:
    facts = results("outside windows")
    assert facts["noted"] >= facts["layers"]
    assert facts["traces"] == 1


def test_weights_and_kept_inputs_are_the_arithmetics(results: Results) -> None:
    facts = results("momentum")
    assert facts["roles"]["WEIGHT"] == facts["parameters"]["trained"]
    assert facts["roles"]["INPUT"] == 8 * 16 * 16 * 3 * 4 + 8 * 4


def test_a_weight_that_copies_itself_for_every_reader_is_found_and_left_copying(results: Results) -> None:
    facts = results("lookup")
    assert facts["mismatches"] == 0
    assert facts["roles"]["WEIGHT"] == facts["parameters"]["trained"]
    assert facts["largest"]["FEATURE_MAP"] >= 400 * 16 * 4  # the copy that the forward pass reads


def test_in_eager_mode_every_gradient_is_reported_once_a_step(results: Results) -> None:
    facts = results("eager")
    assert facts["gradient_bytes_a_step"] == facts["parameters"]["trained"]
    assert sorted(facts["gradients"]) == sorted(facts["optimizers"][0][2])


@pytest.mark.parametrize("loop", ["momentum", "plain", "adam", "fit"])
def test_in_a_function_gradients_are_known_but_for_small_ones_in_memory_handed_on(results: Results, loop: str) -> None:
    facts = results(loop)
    assert {"conv.kernel", "dense.kernel", "dense.bias"} <= set(facts["gradients"])
    assert (
        0 <= facts["parameters"]["trained"] - facts["gradient_bytes_a_step"] <= 3 * 32
    )  # the convolution's and norm's


def test_a_gradient_that_sums_over_one_sample_is_found_where_the_summand_is(results: Results) -> None:
    facts = results("broadcast")
    assert (facts["mismatches"], facts["largest"]["UNKNOWN"]) == (0, 0)
    assert facts["gradients"] == {"product.kernel": facts["parameters"]["trained"]}


@pytest.mark.parametrize(("loop", "arrays"), [("plain", 0), ("momentum", 1), ("eager", 1), ("fit", 1), ("adam", 3)])
def test_the_optimizers_state_is_its_definitions(results: Results, loop: str, arrays: int) -> None:
    facts = results(loop)
    assert facts["state"] == arrays * facts["parameters"]["trained"] + ITERATION + RATE


def test_every_replica_has_its_own_weights_and_state(results: Results) -> None:
    facts = results("mirrored")
    trained, counters = facts["parameters"]["trained"], 2 * (ITERATION + RATE)
    assert facts["largest"]["WEIGHT"] == 2 * trained
    assert facts["state"] == 2 * trained + counters
    assert [each[2] for each in facts["optimizers"]] == [
        [name for name in facts["names"] if "moving" not in name and "seed" not in name]
    ]
    assert facts["gradient_bytes_a_step"] >= 2 * 0.97 * trained


def test_all_that_a_compiled_step_takes_is_one_pool(results: Results) -> None:
    largest, maps = results("compiled")["largest"], results("fit")["largest"]["FEATURE_MAP"]
    assert largest["COMPILED"] > results("compiled")["parameters"]["trained"]
    assert largest["WORKSPACE"] == 0
    assert largest["GRADIENT_MAP"] == 8  # two numbers of four bytes that the region hands on: they outlive it
    assert largest["FEATURE_MAP"] < maps / 1000  # numbers that the function around the region hands on


def test_weights_in_half_precision_beside_their_originals_are_casts(results: Results) -> None:
    """Batch normalization computes in single precision."""
    convolution, dense = 3 * 3 * 3 * 8 + 8, 14 * 14 * 8 * 10 + 10
    assert results("mixed")["largest"]["CAST"] == 2 * (convolution + dense)
    assert results("fit")["largest"]["CAST"] == 0


def test_momentum_is_there_twice_while_a_function_trains(results: Results) -> None:
    momentum, plain = results("momentum"), results("plain")
    twice = momentum["largest"]["OPTIMIZER_STATE"] - momentum["state"]
    assert twice >= 0.98 * momentum["parameters"]["trained"]  # all but the smallest are computed ahead
    assert plain["largest"]["OPTIMIZER_STATE"] <= plain["state"] + ITERATION


def test_operators_are_in_the_layers_of_the_model(results: Results) -> None:
    assert {"conv", "bn", "dense"} <= set(results("momentum")["layers"])
    assert {"conv", "bn", "dense"} <= set(results("eager")["layers"])


def test_in_a_fit_the_batches_are_what_the_data_set_loads(results: Results) -> None:
    facts = results("fit")
    assert facts["inputs"] == ["tf.data"]
    assert facts["optimizers"][0][0] == "sgd"  # taken from the compiled model
    assert facts["batch"] == [8, "the batch size of fit"]
    assert facts["largest"]["INPUT"] >= 8 * 16 * 16 * 3 * 4


def test_a_cache_that_grows_every_step_is_dynamic(results: Results) -> None:
    assert results("cache")["planted"]["left"] == 8 * ["DYNAMIC"]
    assert results("eager")["planted"] == {"left": [], "gone": []}


def test_what_backward_needs_is_a_feature_map_and_what_it_makes_a_gradient_map(results: Results) -> None:
    assert results("map")["planted"] == {"left": [], "gone": ["FEATURE_MAP", "GRADIENT_MAP"]}


def test_a_convolutions_scratch_is_workspace(results: Results) -> None:
    assert results("momentum")["largest"]["WORKSPACE"] > 0


def test_everything_is_put_back(results: Results) -> None:
    assert results("restored") is True
