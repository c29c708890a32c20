"""TensorFlow as it is built for GPUs, over libraries that stand in for CUDA's; all else of it is real.

The card's memory is the host's and its kernels do nothing: bytes, names and what belongs to what can be judged here,
and no time and no value.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from gpu.stand_in.on_tensorflow import stand_in
from gpu.stand_in.on_tensorflow.loops import BATCH, CLASSES, HIDDEN, WIDTH

from tbdprof.analysis.memory.post_mortem import asked_bytes
from tbdprof.hooks.on_tensorflow import ABOUT

pytestmark = pytest.mark.skipif(stand_in.why_not() is not None, reason=stand_in.why_not() or "")
BOTH = ("prepared", "joined")
LIMIT_S = 300
REGION_BYTES = 2 << 20  # the first that a growing allocator asks the driver for
Json = dict[str, Any]
Results = Callable[[str], Json]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    folder = stand_in.make(tmp_path_factory.mktemp("libraries"))
    script = Path(__file__).with_name("loops.py")

    def started(loop: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(script), loop],
            env=stand_in.environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    with started("full") as full:  # it mostly waits: the others run meanwhile

        @cache
        def of(loop: str) -> Json:
            process = full if loop == "full" else started(loop)
            with process:
                try:
                    out, errors = process.communicate(timeout=LIMIT_S)
                finally:
                    process.kill()
            assert process.returncode == 0, errors
            reported: Json = json.loads(out)
            return reported

        yield of
        full.kill()


@pytest.mark.parametrize("way", BOTH)
def test_after_every_event_all_of_the_gpus_allocators_total_is_known(results: Results, way: str) -> None:
    reported = results(way)
    assert reported["run"][:2] == ["cuda:0", "NVIDIA H200"]
    assert (reported["violations"], reported["mismatches"], reported["independent_total"]) == ([], 0, None)
    assert reported["largest"]["UNKNOWN"] == 0
    assert reported["peak"] == reported["independent_peak"] <= reported["whole_run_peak"] == reported["kept"]["peak"]


@pytest.mark.parametrize("way", BOTH)
def test_weights_and_optimizer_state_are_what_their_shapes_say(results: Results, way: str) -> None:
    reported = results(way)
    assert reported["roles"]["WEIGHT"] == reported["sizes"]["trained"]
    assert reported["roles"]["OPTIMIZER_STATE"] == reported["sizes"]["state"]


@pytest.mark.parametrize("way", BOTH)
def test_the_hosts_memory_that_copies_go_through_is_not_the_devices(results: Results, way: str) -> None:
    reported = results(way)
    assert {"cuda:0", "gpu_host_bfc"} <= set(reported["devices"])
    assert sum(reported["roles"].values()) + reported["rounding"] == reported["independent_peak"]


def test_what_the_allocator_keeps_of_the_card_is_separate_from_the_context(results: Results) -> None:
    reported = results("prepared")
    layers = reported["layers_of_memory"]
    assert layers["context and libraries"] == stand_in.CONTEXT_BYTES
    assert layers["allocator cache"] > stand_in.CARD_BYTES // 4  # it takes nearly all that is free
    assert (sum(layers.values()), reported["unexplained"]) == (reported["used"], 0)


def test_an_allocator_that_grows_keeps_little(results: Results) -> None:
    reported = results("joined")
    layers = reported["layers_of_memory"]
    assert layers["context and libraries"] == stand_in.CONTEXT_BYTES
    assert layers["allocator cache"] < reported["peak"] + REGION_BYTES
    assert (sum(layers.values()), reported["unexplained"]) == (reported["used"], 0)


@pytest.mark.parametrize("way", BOTH)
def test_each_kernel_and_copy_is_in_the_operator_that_asked_for_it(results: Results, way: str) -> None:
    reported = results(way)
    assert reported["kernels"]["KERNEL"] > 100 * reported["steps"]
    assert reported["kernels"]["COPY"] > 0
    assert (reported["in_no_span"], reported["unlaunched"], reported["launched_late"]) == (0, 0, 0)
    assert {"FORWARD", "BACKWARD", "UPDATE"} <= set(reported["phases"])
    assert {"embedding", "norm", "mha.query", "hidden", "classes"} <= set(reported["layers"])
    assert reported["streams"] > 2


@pytest.mark.parametrize("way", BOTH)
def test_each_product_is_one_of_the_models(results: Results, way: str) -> None:
    reported = results(way)
    # Of the two dense layers forward, and backward for the weight and what came in; of the attention's four
    # projections, which are "Einsum"s, and its two products of activations.
    assert reported["products"]["MatMul"] == 6 * reported["steps"]
    assert reported["products"]["Einsum"] + reported["products"]["BatchMatMulV2"] == 18 * reported["steps"]


def test_what_xla_has_a_library_multiply_counts_as_the_operators_it_was_made_of(results: Results) -> None:
    reported = results("compiled")
    forward = BATCH * (WIDTH * HIDDEN + HIDDEN * CLASSES)
    # Backward for both weights, and for what came into the second layer; the images need no gradient.
    backward = forward + BATCH * HIDDEN * CLASSES
    assert reported["flops_per_sample"] * BATCH == 2 * (forward + backward)
    assert sum(reported["products"].values()) == 5 * reported["steps"]
    assert (reported["in_no_span"], reported["unlaunched"]) == (0, 0)
    assert "hidden" in reported["layers"]
    assert "one by one" in reported["missing"]["graphs of kernels"]


def test_of_a_compiled_region_weights_are_reported_and_all_else_is_one_pool(results: Results) -> None:
    reported = results("compiled")
    assert (reported["violations"], reported["mismatches"], reported["largest"]["UNKNOWN"]) == ([], 0, 0)
    assert reported["roles"]["WEIGHT"] == reported["sizes"]["trained"]
    assert reported["roles"]["COMPILED"] > 0
    assert reported["peak"] == reported["independent_peak"]


def test_precision_and_policy_are_those_of_the_card(results: Results) -> None:
    assert results("prepared")["flags"]["tf32"] == "false"  # as was asked for
    joined = results("joined")["flags"]
    assert joined["tf32"] == "true"  # as TensorFlow has it on such a card
    assert "mixed_float16" in joined.values()


def test_a_full_card_is_recognized_in_a_function_in_eager_mode_and_where_a_copy_finds_no_room(results: Results) -> None:
    in_function, eager, copied = results("full")["said"]
    assert in_function.startswith("OOM when allocating tensor with shape[")
    assert asked_bytes(in_function, ABOUT.failure_text) == 1 << 39
    assert asked_bytes(eager, ABOUT.failure_text) == 1 << 29
    assert "Dst tensor is not initialized" in copied
