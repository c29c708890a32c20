"""What operators compute, from made-up calls; and phases and facts in this process."""

import importlib.util
import threading
from pathlib import Path

import pytest

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("mxnet is not installed", allow_module_level=True)

import numpy as np

vars(np).setdefault("bool", bool)  # MXNet reads it

import mxnet as mx  # noqa: E402

from tbdprof.analysis.kernels import flops  # noqa: E402
from tbdprof.facts.records import Operation, Phase  # noqa: E402
from tbdprof.hooks.on_mxnet import facts, precision  # noqa: E402
from tbdprof.hooks.on_mxnet.flops import works  # noqa: E402
from tbdprof.hooks.on_mxnet.session.calls import Array, Invocation, Stored  # noqa: E402
from tbdprof.hooks.on_mxnet.watch.owners import Watched  # noqa: E402
from tbdprof.hooks.on_mxnet.watch.phases import Phases  # noqa: E402


def called(operator: str, inputs: list[tuple[int, ...]], output: tuple[int, ...]) -> Invocation:
    arrays = tuple(Array(shape, "float32", wanted=True) for shape in inputs)
    return Invocation(operator, {}, arrays, (Array(output, "float32"),))


@pytest.mark.parametrize(
    ("operator", "inputs", "output", "expected"),
    [
        ("_npi_matmul", [(7, 2, 3), (3, 5)], (7, 2, 5), 2 * 7 * 2 * 3 * 5),
        ("_npi_matmul", [(1, 2, 3), (7, 3, 5)], (7, 2, 5), 2 * 7 * 2 * 3 * 5),
        ("_npi_matmul", [(3,), (3, 5)], (5,), 2 * 3 * 5),
        ("_npi_matmul", [(2, 3), (3,)], (2,), 2 * 2 * 3),
        ("_np_dot", [(7, 2, 3), (4, 3, 5)], (7, 2, 4, 5), 2 * 7 * 2 * 4 * 3 * 5),
        ("_np_dot", [(2, 3), (3,)], (2,), 2 * 2 * 3),
        ("_np_dot", [(2, 0), (0, 3)], (2, 3), 0),
    ],
)
def test_numpys_products_are_right_by_hand(
    operator: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], expected: int
) -> None:
    computed = called(operator, inputs, output)
    forward, backward = works.forward(computed), works.backward(computed, "_backward_")

    assert forward is not None
    assert backward is not None
    assert flops.count(forward).model == expected
    assert flops.count(backward).model == 2 * expected


@pytest.mark.parametrize(("operator", "places"), [("", 1), ("Modulated", 2)])
def test_a_deformable_convolution_applies_its_weight_at_every_place(operator: str, places: int) -> None:
    # Two images, 4 channels in, 6 out, 3 × 3, put out at 5 × 7 places.
    inputs = [(2, 4, 7, 9), *[(2, 18, 5, 7), (2, 9, 5, 7)][:places], (6, 4, 3, 3), (6,)]
    computed = called(f"_contrib_{operator}DeformableConvolution", inputs, (2, 6, 5, 7))
    computed.attributes = {"num_filter": "6"}
    forward, backward = works.forward(computed), works.backward(computed, f"_backward_{computed.operator}")

    assert forward is not None
    assert backward is not None
    assert flops.count(forward).model == 2 * 6 * 4 * 9 * 2 * 5 * 7
    assert flops.count(backward).model == 2 * flops.count(forward).model


def test_a_lookup_reads_no_more_of_the_table_than_the_rows() -> None:
    for operator, inputs in (("Embedding", [(6,), (1000, 8)]), ("take", [(1000, 8), (6,)])):
        found = works.forward(called(operator, inputs, (6, 8)))

        assert found is not None
        assert found.moved_bytes == 4 * 6 + 2 * 4 * 6 * 8


def sparse(shape: tuple[int, ...], values: int | None, *, wanted: bool = False) -> Array:
    return Array(shape, "float32", wanted, Stored(values))


DENSE = Array((5, 7), "float32", wanted=True)


@pytest.mark.parametrize(
    ("one", "other", "attributes", "forward", "backward"),
    [
        (sparse((3, 5), 4), DENSE, {}, 2 * 4 * 7, 2 * 4 * 7),
        (sparse((5, 3), 4), DENSE, {"transpose_a": "True"}, 2 * 4 * 7, 2 * 4 * 7),
        (sparse((3, 5), 0), DENSE, {}, 0, 0),
        (sparse((3, 5), None), DENSE, {}, None, None),
        (sparse((3, 5), 4, wanted=True), DENSE, {}, 2 * 4 * 7, None),
        (Array((3, 5), "float32", wanted=True), sparse((5, 7), 9), {}, 2 * 3 * 9, 2 * 3 * 9),
        (sparse((3, 5), 4), sparse((5, 7), 14, wanted=True), {}, None, None),
        (sparse((3, 5), 4), sparse((5, 7), 35, wanted=True), {}, 2 * 4 * 7, 2 * 4 * 7),  # that stores all values
    ],
)
def test_a_product_of_sparse_data_has_a_count_where_its_values_are_known(
    one: Array, other: Array, attributes: dict[str, str], forward: int | None, backward: int | None
) -> None:
    computed = Invocation("dot", attributes, (one, other), (Array((3, 7), "float32"),))
    found = works.forward(computed), works.backward(computed, "_backward_dot")

    assert [work and flops.count(work).model for work in found] == [forward, backward]


def test_a_dense_layer_of_sparse_data_multiplies_the_values_alone() -> None:
    inputs = sparse((3, 5), 4), Array((7, 5), "float32", wanted=True), Array((7,), "float32", wanted=True)
    work = works.forward(Invocation("FullyConnected", {}, inputs, (Array((3, 7), "float32"),)))

    assert work is not None
    assert (flops.count(work).model, flops.count(work).elementwise) == (2 * 4 * 7, 3 * 7)


@pytest.mark.parametrize("operator", ["elemwise_add", "sgd_update", "batch_dot"])
def test_other_operators_on_sparse_data_have_no_count(operator: str) -> None:
    inputs = sparse((1, 3, 5), 4), Array((1, 5, 7), "float32")

    assert works.forward(Invocation(operator, {}, inputs, (Array((1, 3, 7), "float32"),))) is None


@pytest.mark.parametrize("operator", ["_npi_einsum", "_npi_tensordot", "_npi_tensordot_int_axes"])
def test_a_product_whose_sizes_are_not_worked_out_has_a_kind_and_no_count(operator: str) -> None:
    assert works.operation(operator) is works.operation(f"_backward{operator}") is Operation.MATMUL
    assert works.is_product(operator)
    assert works.forward(called(operator, [(2, 3), (3, 5)], (2, 5))) is None


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("_FusedOp", Operation.ELEMENTWISE),
        ("CopyGPU2GPU", works.operation("CopyCPU2CPU")),
        ("_copyto_GPU2GPU", works.operation("_copyto")),
    ],
)
def test_what_only_a_gpu_runs_has_a_kind(operator: str, kind: Operation) -> None:
    assert works.operation(operator) is kind is not Operation.OTHER


@pytest.mark.parametrize(("override", "reported"), [("0", "0"), (None, "not set")])
def test_what_decides_about_tf32_is_reported_of_a_gpu(
    override: str | None, reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    if override is not None:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", override)

    assert precision.flags("cuda:0")["NVIDIA_TF32_OVERRIDE"] == reported
    assert precision.flags("cpu") == {}


def test_the_gradient_of_a_function_of_one_number_is_a_multiplication() -> None:
    work = works.backward(called("exp", [(6,)], (6,)), "_backward_exp")

    assert work is not None
    assert flops.count(work).elementwise == 6


@pytest.mark.parametrize("operator", ["_power", "_power_scalar", "_rpower_scalar", "_greater_scalar", "argmax"])
def test_arithmetic_of_common_networks_has_a_count(operator: str) -> None:
    work = works.forward(called(operator, [(6,)], (6,)))

    assert work is not None
    assert flops.count(work).elementwise == 6


@pytest.mark.filterwarnings("ignore:Cannot decide type")
def test_the_shape_of_an_imported_models_parameter_is_that_of_its_data(tmp_path: Path) -> None:
    model = mx.gluon.nn.Dense(3, in_units=4)
    model.initialize()
    model.hybridize()
    model(mx.nd.ones((1, 4)))
    model.export(str(tmp_path / "model"))
    files = str(tmp_path / "model-symbol.json"), ["data"], str(tmp_path / "model-0000.params")
    imported = mx.gluon.SymbolBlock.imports(*files)
    watched = Watched()
    watched.add_model(imported)

    assert {each.shape for each in facts.parameter_list(watched)} == {(3, 4), (3,)}


def test_a_phase_is_found_while_another_begins() -> None:
    """The collector lets arrays go wherever an object is made, and MXNet's engine is asked to."""
    seen = []

    class Collecting:
        span = -1

        def tick(self) -> int:
            seen.append(phases.current(threading.get_ident()))
            return len(seen)

    phases = Phases(Collecting(), waits=False)  # type: ignore[arg-type]
    thread = threading.Thread(target=lambda: phases.end(phases.begin(Phase.FORWARD)), daemon=True)
    thread.start()
    thread.join(10)

    assert seen == [Phase.OUTSIDE, Phase.FORWARD]
