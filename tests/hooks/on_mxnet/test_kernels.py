"""Windows of kernels, recorded in a process of its own: what MXNet allocates first is seen once a process."""

import importlib.util
import os
import pickle
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from tbdprof.analysis.kernels import flops
from tbdprof.analysis.memory.blocks import lifetimes
from tbdprof.facts import work
from tbdprof.facts.records import Operation, Phase, SpanKind
from tbdprof.facts.work import Work

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("mxnet is not installed", allow_module_level=True)

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
STEPS = 2
TRAININGS = (
    "resnet_hybrid",
    "resnet_imperative",
    "resnet_static",
    "convolutions",
    "lstm",
    "transformer_hybrid",
    "transformer_imperative",
)
RESNETS = ("resnet_hybrid", "resnet_imperative", "resnet_static")
TRANSFORMERS = ("transformer_hybrid", "transformer_imperative")
# At 224 px an image takes 24,299,077,632; the dense layer's three products are 12,288,000 of it, and the rest goes with
# the places of the maps: 2 × 1 where 224 px have 7 × 7.
RESNET_FLOPS = (24_299_077_632 - 12_288_000) * 2 // 49 + 12_288_000


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory):
    path, temporary = tmp_path_factory.mktemp("mxnet") / "result.pickle", tmp_path_factory.mktemp("temporary")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "kernel_scenarios.py"), str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)},
    )
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(HERE))
    try:
        return pickle.loads(path.read_bytes())
    finally:
        sys.path.remove(str(HERE))


def operators(window):
    return window.spans[window.spans["kind"] == SpanKind.OPERATOR]


def layers(window) -> dict[int, str]:
    """The layer of each operator, by the rule of the records: the span around it, else that of its forward operator."""
    spans = {int(row["id"]): row for row in window.spans}
    around = {
        int(row["id"]): window.strings[spans[int(row["parent"])]["name"]]
        for row in operators(window)
        if row["parent"] >= 0 and spans[int(row["parent"])]["kind"] == SpanKind.LAYER
    }
    own = {int(row["forward"]): around[int(row["id"])] for row in operators(window) if int(row["id"]) in around}
    through = {int(row["id"]): own[int(row["forward"])] for row in operators(window) if int(row["forward"]) in own}
    return {**through, **around}


def calls(window, name: str) -> Counter[str | None]:
    known = layers(window)
    rows = operators(window)
    return Counter(known.get(int(row["id"])) for row in rows if window.strings[row["name"]] == name)


def works(window) -> list[tuple[str, Phase, Work]]:
    return [
        (window.strings[row["name"]], Phase(row["phase"]), work.parse(window.strings[row["work"]]))
        for row in operators(window)
        if row["work"] >= 0
    ]


def model_flops(window) -> float:
    counted = (flops.count(each) for _, _, each in works(window))
    return sum(each.model for each in counted if each is not None) / STEPS


@pytest.mark.parametrize("name", TRAININGS)
def test_operators_nest_within_a_thread_and_lie_in_their_layers(result, name: str) -> None:
    window = result.windows[name]
    spans = {int(row["id"]): row for row in window.spans}
    roots = [row for row in window.spans if row["parent"] < 0 and row["kind"] != SpanKind.PHASE]

    assert len(spans) == len(window.spans)
    for row in window.spans:
        if row["parent"] >= 0:
            parent = spans[int(row["parent"])]
            assert parent["thread"] == row["thread"]
            assert parent["start_ns"] <= row["start_ns"] <= row["end_ns"] <= parent["end_ns"]
    for thread in {int(row["thread"]) for row in roots}:
        edges = sorted((int(row["start_ns"]), int(row["end_ns"])) for row in roots if row["thread"] == thread)
        assert all(one[1] <= other[0] for one, other in pairwise(edges))
    assert window.missing == {}
    assert len(window.marks) == STEPS


@pytest.mark.parametrize("name", RESNETS)
def test_every_convolution_and_the_dense_layer_are_found_by_name_forward_and_backward(result, name: str) -> None:
    from tbdprof.suite.resnet50.architecture import STAGES

    expected = {"conv1"}
    for number, stage in enumerate(STAGES, start=1):
        expected |= {f"layer{number}.{block}.conv{i}" for block in range(stage.blocks) for i in (1, 2, 3)}
        expected.add(f"layer{number}.0.downsample.0")
    window = result.windows[name]

    assert len(expected) == 53
    for prefix in ("", "_backward_"):
        assert calls(window, f"{prefix}Convolution") == dict.fromkeys(expected, STEPS)
        assert calls(window, f"{prefix}FullyConnected") == {"fc": STEPS}
        assert len(calls(window, f"{prefix}BatchNorm")) == 53
        assert calls(window, f"{prefix}Activation")["layer4.2.relu"] == 3 * STEPS


@pytest.mark.parametrize("name", RESNETS)
def test_what_resnet_computes_is_right_by_hand(result, name: str) -> None:
    assert model_flops(result.windows[name]) == RESNET_FLOPS


def test_a_static_shape_runs_in_bulk_and_says_so(result) -> None:
    window = result.windows["resnet_static_shape"]

    assert "in bulk" in window.missing["layers of kernels"]
    assert not layers(window)


def test_a_grouped_dilated_convolution_and_a_transposed_one_are_right_by_hand(result) -> None:
    """6 × 4/2 × 3 × 3 weights at 2 × 9 × 7 places, no gradient of the input; 6 × 5 × 4 × 4 at as many of its input."""
    window = result.windows["convolutions"]
    convolution = next(each for name, _, each in works(window) if name == "Convolution")

    assert convolution.sizes == {"weight": 108, "positions": 126, "bias": 6 * 126}
    assert model_flops(window) == 2 * 126 * (2 * 108 + 3 * 480)
    assert calls(window, "_backward_Deconvolution") == {"1": STEPS}


def test_an_lstm_is_right_by_hand(result) -> None:
    """Two layers of two directions: 4 × 5 × (3 + 5) and 4 × 5 × (10 + 5) weights each, at 4 × 2 places."""
    window = result.windows["lstm"]

    assert model_flops(window) == 3 * 2 * 8 * (2 * 160 + 2 * 300)
    assert calls(window, "RNN") == calls(window, "_backward_RNN") == {"0": STEPS}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer_is_right_by_hand_and_its_layers_have_names(result, name: str) -> None:
    """Ten tokens through four 8 × 8, an 8 × 16, a 16 × 8 and an 8 × 11 matrix; two products of 2 × 5 × 5 × 8."""
    window = result.windows[name]
    dense = {f"attention.{each}" for each in ("query", "key", "value", "out")} | {"wide", "narrow", "head"}

    assert model_flops(window) == 3 * 2 * (10 * (4 * 64 + 2 * 128 + 88) + 2 * 2 * 5 * 5 * 8)
    for prefix in ("", "_backward_"):
        assert calls(window, f"{prefix}FullyConnected") == dict.fromkeys(dense, STEPS)
        assert calls(window, f"{prefix}LayerNorm") == {"norm1": STEPS, "norm2": STEPS}
        assert calls(window, f"{prefix}softmax") == {"attention": STEPS}
        assert calls(window, f"{prefix}Embedding") == {"embedding": STEPS}
    assert set(calls(window, "batch_dot")) == {"attention"}


def test_a_product_before_the_first_block_is_followed(result) -> None:
    """2 × 5 through 5 × 4, of which the weight wants a gradient, and 2 × 4 through 4 × 3, of which both do."""
    window = result.windows["before_the_first_block"]

    assert model_flops(window) == 2 * (2 * 2 * 5 * 4 + 3 * 2 * 4 * 3)
    assert window.missing == {}


def test_both_calls_of_one_layer_are_followed(result) -> None:
    """2 × 4 through 4 × 4, twice; only the second's input wants a gradient."""
    window = result.windows["one_layer_twice"]

    assert model_flops(window) == 2 * 2 * 4 * 4 * (2 + 1 + 2)
    assert window.missing == {}


def test_gradients_are_not_mistaken_for_those_of_an_evaluation(result) -> None:
    """2 × 4 through 4 × 4 and 4 × 1: three times forward, one backward."""
    window = result.windows["evaluated_on_the_same_batch"]

    assert model_flops(window) == 2 * (2 * 4 * 4 * (3 + 1) + 2 * 4 * (3 + 2))
    assert window.missing == {}


def test_what_is_flattened_in_place_is_followed_to_its_pooling(result) -> None:
    window = result.windows["pooled_and_flattened"]

    assert calls(window, "_backward_Pooling") == {"1": STEPS}
    assert window.missing == {}


def test_numpys_products_are_counted_or_reported(result) -> None:
    """2 × 3 × 4 through 4 × 5, twice, forward and both gradients; 2 × 2 through 2 × 2, whose input wants none."""
    window = result.windows["numpy_products"]
    kinds = {window.strings[row["name"]]: Operation(row["operation"]) for row in operators(window)}

    assert model_flops(window) == 2 * 3 * 2 * 6 * 4 * 5 + 2 * 2 * 2 * 2 * 2
    assert kinds["_npi_einsum"] == kinds["_backward_npi_einsum"] == Operation.MATMUL
    assert window.missing == {
        "counts of kernels": "4 of 16 products could not be followed to what they multiply, and are not counted"
    }


def test_products_of_sparse_data_are_counted_by_the_values_it_stores(result) -> None:
    """Three values by 4 columns, forward and for the weight, and by 6; 2 × 4 through 4 × 3, whose input wants one."""
    window = result.windows["sparse_products"]

    assert model_flops(window) == 2 * 3 * (2 * 4 + 6) + 3 * 2 * 2 * 4 * 3
    assert window.missing == {}


def test_a_graph_counts_the_values_that_it_is_given(result) -> None:
    """Four values by 4 columns, forward and for the weight; how many its squares are, the graph does not say."""
    window = result.windows["sparse_in_a_graph"]

    assert model_flops(window) == 2 * 2 * 4 * 4
    assert window.missing["counts of kernels"] == _sparse(4, 8)


def test_a_product_of_two_sparse_arrays_is_not_counted_and_reported(result) -> None:
    window = result.windows["sparse_by_sparse"]

    assert model_flops(window) == 2 * 2 * 3 * 4 * 3  # 3 × 4 through 4 × 3
    assert window.missing == {"counts of kernels": _sparse(2, 6)}


def test_a_module_counts_the_values_of_each_batch(result) -> None:
    """Two and then four values by 4 columns, forward and for the weight."""
    window = result.windows["sparse_in_a_module"]
    products = [each for name, _, each in works(window) if each.operation is Operation.MATMUL]

    assert [flops.count(each).model for each in products] == [2 * 2 * 4] * 2 + [2 * 4 * 4] * 2
    assert window.missing == {}


def _sparse(lost: int, products: int) -> str:
    what = "take sparse data: how many of its values they multiply is not known"
    return f"{lost} of {products} products {what}, so they are not counted"


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_updates_are_in_no_layer_and_counted_by_the_elements_of_their_parameters(result, name: str) -> None:
    window = result.windows[name]
    updates = [each for _, phase, each in works(window) if phase is Phase.UPDATE and each.name == "adam"]
    elements = 11 * 8 + 4 * (64 + 8) + 4 * 8 + (128 + 16) + (128 + 8) + (88 + 11)

    assert {each.operation for each in updates} == {Operation.OPTIMIZER}
    assert sum(each.sizes["elements"] for each in updates) == STEPS * elements
    assert set(calls(window, "adam_update")) == {None}


@pytest.mark.parametrize("name", TRAININGS)
def test_operators_lie_in_the_phase_they_were_asked_for_in(result, name: str) -> None:
    window = result.windows[name]
    phases = defaultdict(set)
    for row in operators(window):
        phases[window.strings[row["name"]]].add(Phase(row["phase"]))

    for each, seen in phases.items():
        if each.startswith("_backward_"):
            assert seen == {Phase.BACKWARD}
        if each.endswith("_update"):
            assert seen == {Phase.UPDATE}
        if each in ("Convolution", "FullyConnected", "RNN", "LayerNorm"):
            assert seen == {Phase.FORWARD}


def test_a_window_of_kernels_changes_no_weight(result) -> None:
    assert result.same_weights


def test_operators_run_in_bulk_again_afterwards(result) -> None:
    before, after = result.bulks

    assert before == after > 0


def test_mxnets_counter_is_right_in_a_memory_window_afterwards(result) -> None:
    _, levels = lifetimes(result.memory["allocation"])

    assert result.independent_total is None
    assert len(levels.sequence) > 0
    assert levels.total_bytes.tolist() == levels.known_bytes.tolist()


def test_everything_is_put_back_and_no_file_is_left(result) -> None:
    assert result.after == result.before
    assert result.leftovers == []
