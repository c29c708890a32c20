"""What TensorFlow's operators compute, by hand: sizes at which every axis can be distinguished from every other."""

from dataclasses import replace
from typing import Any

import pytest

from tbdprof.analysis.kernels.flops import count
from tbdprof.facts.records import Operation
from tbdprof.hooks.on_tensorflow.flops import works
from tbdprof.hooks.on_tensorflow.flops.operands import Array, Computed
from tbdprof.hooks.on_tensorflow.operators import kinds
from tbdprof.hooks.on_tensorflow.operators.fusion import is_fused, plain

MAPS = Array((2, 9, 11, 6))
UNKNOWN = Array(None)


def computed(kind: str, inputs: list[Any], *outputs: Any, **more: Any) -> Computed:
    arrays = [each if isinstance(each, Array) else Array(tuple(each)) for each in (*inputs, *outputs)]
    return Computed(kind, tuple(arrays[: len(inputs)]), tuple(arrays[len(inputs) :]), **more)


def flops(*of: Any, **more: Any) -> tuple[int, int]:
    """The FLOPs of products and those of all else."""
    work = works.kind_and_work(computed(*of, **more))[1]
    assert work is not None
    counted = count(work)
    assert counted is not None
    return counted.model, counted.elementwise


@pytest.mark.parametrize(
    ("name", "inputs", "output", "products"),
    [
        # 2 × kernel × channels in × channels out × places put out, of two images.
        ("plain", [MAPS, (3, 5, 6, 7)], (2, 7, 7, 7), 2 * 3 * 5 * 6 * 7 * 7 * 7 * 2),
        ("grouped", [MAPS, (3, 5, 3, 8)], (2, 7, 7, 8), 2 * 3 * 5 * 3 * 8 * 7 * 7 * 2),  # 3 channels in of each group
        ("dilated", [MAPS, (3, 5, 6, 7)], (2, 5, 3, 7), 2 * 3 * 5 * 6 * 7 * 5 * 3 * 2),
    ],
)
def test_a_convolution_lays_its_weight_at_every_place_put_out(
    name: str, inputs: list[Any], output: tuple[int, ...], products: int
) -> None:
    assert flops("Conv2D", inputs, output) == (products, 0)


def test_both_gradients_of_a_convolution_cost_what_it_does() -> None:
    maps, weight, made, sizes = MAPS, (3, 5, 6, 7), (2, 7, 7, 7), (4,)
    forward = flops("Conv2D", [maps, weight], made)

    assert flops("Conv2DBackpropInput", [sizes, weight, made], MAPS, is_backward=True) == forward
    assert flops("Conv2DBackpropFilter", [maps, sizes, made], weight, is_backward=True) == forward


@pytest.mark.parametrize(
    ("equation", "one", "other", "products"),
    [
        ("abc,cd->abd", (2, 3, 5), (5, 7), 2 * 2 * 3 * 5 * 7),
        ("...c,cd->...d", (2, 3, 5), (5, 7), 2 * 2 * 3 * 5 * 7),
        ("aecd,abcd->acbe", (2, 3, 4, 5), (2, 7, 4, 5), 2 * 2 * 3 * 4 * 5 * 7),
    ],
)
def test_an_einsum_is_a_product(equation: str, one: tuple[int, ...], other: tuple[int, ...], products: int) -> None:
    assert flops("Einsum", [one, other], (1,), attributes={"equation": equation.encode()}) == (products, 0)


def test_a_sparse_matrix_multiplies_each_of_its_values() -> None:
    indices, values, shape = Array((9, 2), "int64"), (9,), Array((2,), "int64")
    unknown = works.kind_and_work(computed("SparseTensorDenseMatMul", [UNKNOWN, UNKNOWN, shape, (5, 7)], UNKNOWN))

    assert flops("SparseTensorDenseMatMul", [indices, values, shape, (5, 7)], (3, 7)) == (2 * 9 * 7, 0)
    assert unknown == (Operation.MATMUL, None)


@pytest.mark.parametrize(("mode", "gates"), [("lstm", 4), ("gru", 3)])
@pytest.mark.parametrize("time_major", [True, False])
def test_a_recurrent_layer_of_cudnn_applies_all_its_weights_at_every_step(
    mode: str, gates: int, time_major: bool
) -> None:
    # 7 steps of 3 sequences, 5 wide, through two directions of 6 units.
    given, state = ((7, 3, 5), (2, 3, 6)) if time_major else ((3, 7, 5), (3, 2, 6))
    weight, biases = 2 * gates * 6 * (5 + 6), 2 * gates * 6 * 2
    inputs = [given, state, state, (weight + biases,), (3,)]
    attributes = {"rnn_mode": mode.encode(), "time_major": time_major, "num_proj": 0}

    assert flops("CudnnRNNV3", inputs, (7, 3, 12), attributes=attributes) == (2 * weight * 21, biases * 21)
    assert flops("CudnnRNNBackpropV3", inputs, given, attributes=attributes)[0] == 2 * 2 * weight * 21


def test_a_transposed_convolution_lays_its_weight_at_every_place_of_its_input() -> None:
    # A weight of 3×3, 4 channels out, 8 in, on 5×6 places of one image; it puts out 11×13.
    assert flops("Conv2DBackpropInput", [(4,), (3, 3, 4, 8), (1, 5, 6, 8)], (1, 11, 13, 4)) == (
        2 * 3 * 3 * 4 * 8 * 5 * 6,
        0,
    )


def test_a_depthwise_convolution_takes_one_channel_for_each_put_out() -> None:
    expected = (2 * 3 * 5 * 6 * 2 * 7 * 7 * 2, 0)
    weight, made = (3, 5, 6, 2), (2, 7, 7, 12)

    assert flops("DepthwiseConv2dNative", [MAPS, weight], made) == expected
    assert flops("DepthwiseConv2dNativeBackpropInput", [(4,), weight, made], MAPS) == expected
    assert flops("DepthwiseConv2dNativeBackpropFilter", [MAPS, (4,), made], weight) == expected


def test_a_fused_bias_is_counted_once_an_element_put_out() -> None:
    assert flops("Conv2D", [MAPS, (3, 5, 6, 7), (7,)], (2, 7, 7, 7), has_bias=True)[1] == 2 * 7 * 7 * 7
    assert flops("MatMul", [(4, 3), (3, 5), (5,)], (4, 5), has_bias=True) == (2 * 4 * 3 * 5, 20)
    filter_and_bias = [MAPS, (4,), (2, 7, 7, 7)]
    assert flops("Conv2DBackpropFilter", filter_and_bias, (3, 5, 6, 7), has_bias=True)[1] == 2 * 7 * 7 * 7


@pytest.mark.parametrize(
    ("kind", "inputs", "output", "attributes"),
    [
        ("MatMul", [(4, 3), (3, 5)], (4, 5), {}),
        ("MatMul", [(3, 4), (3, 5)], (4, 5), {"transpose_a": True}),
        ("MatMul", [(3, 4), (5, 3)], (4, 5), {"transpose_a": True, "transpose_b": True}),
        ("BatchMatMulV2", [(4, 3), (3, 5)], (4, 5), {}),
        ("Einsum", [(4, 3), (5, 3)], (4, 5), {"equation": b"ik,jk->ij"}),
    ],
)
def test_a_product_sums_over_the_axis_both_have(
    kind: str, inputs: list[Any], output: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    assert flops(kind, inputs, output, attributes=attributes) == (2 * 4 * 3 * 5, 0)


def test_a_batch_of_products_counts_each() -> None:
    expected = (2 * 6 * 7 * 4 * 3 * 5, 0)

    assert flops("BatchMatMulV2", [(6, 7, 3, 4), (6, 7, 3, 5)], (6, 7, 4, 5), attributes={"adj_x": True}) == expected
    heads = [(6, 4, 7, 3), (6, 5, 7, 3)]  # batch, length, heads, width
    assert flops("Einsum", heads, (6, 7, 4, 5), attributes={"equation": "bqhw,bkhw->bhqk"}) == expected


def test_an_ellipsis_stands_for_the_axes_that_are_not_named() -> None:
    dense = [(6, 7, 3), (3, 5)]

    assert flops("Einsum", dense, (6, 7, 5), attributes={"equation": "...k,kj->...j"}) == (2 * 6 * 7 * 3 * 5, 0)


def test_what_is_no_product_of_two_is_not_counted_as_one() -> None:
    alone = computed("Einsum", [(4, 3), (5, 3)], (4, 5), attributes={"equation": "ik,jm->ij"})
    turned = computed("Einsum", [(4, 3)], (3, 4), attributes={"equation": "ij->ji"})

    assert works.kind_and_work(alone) == (Operation.MATMUL, None)
    assert works.kind_and_work(turned)[0] is Operation.COPY


def test_where_a_shape_is_not_known_there_is_a_kind_and_no_work() -> None:
    assert works.kind_and_work(computed("Conv2D", [UNKNOWN, (3, 3, 6, 7)], UNKNOWN)) == (Operation.CONVOLUTION, None)
    assert works.kind_and_work(computed("Mul", [UNKNOWN, (3,)], UNKNOWN)) == (Operation.ELEMENTWISE, None)


def test_pooling_counts_the_windows_of_what_it_puts_out() -> None:
    settings = {"attributes": {"ksize": [1, 3, 2, 1]}}
    made = (2, 4, 5, 6)
    elements = 2 * 4 * 5 * 6

    assert flops("MaxPool", [MAPS], made, **settings) == (0, elements * 6)
    assert flops("MaxPoolGrad", [MAPS, made, made], MAPS, **settings) == (0, elements)
    assert flops("AvgPool", [MAPS], made, **settings) == (0, elements * 6)


def test_a_lookup_is_an_embedding_if_a_variable_is_looked_up_in() -> None:
    table, rows, made = Array((100, 8), is_variable=True), Array((5,), "int32"), Array((5, 8))
    looked_up = works.kind_and_work(Computed("GatherV2", (table, rows), (made,)))
    picked = works.kind_and_work(Computed("GatherV2", (Array((100, 8)), rows), (made,)))

    assert looked_up[0] is Operation.EMBEDDING
    assert looked_up[1] is not None
    assert looked_up[1].sizes == {"elements": 40}
    assert looked_up[1].moved_bytes == 2 * 160 + 20  # of the table as much as is written
    assert picked == (Operation.OTHER, None)


@pytest.mark.parametrize("of", ["GatherV2", "Einsum", "MatMul", "Mul", "Identity", "ResourceApplyAdam", "Other"])
@pytest.mark.parametrize("takes", [[(6, 8)], [(6, 8), (8, 5)], [UNKNOWN, (8, 5)], [(6, 8), UNKNOWN]])
@pytest.mark.parametrize("made", [(6, 5), UNKNOWN])
@pytest.mark.parametrize("reads_variable", [True, False])
def test_what_is_not_counted_is_of_the_kind_it_has_where_it_is(
    of: str, takes: list[Any], made: Any, reads_variable: bool
) -> None:
    ran = computed(of, takes, made, attributes={"equation": "ij,jk->ik"})
    first = replace(ran.inputs[0], is_variable=reads_variable)
    counted = replace(ran, inputs=(first, *ran.inputs[1:]))
    inputs, outputs = ([array.shape for array in arrays] for arrays in (counted.inputs, counted.outputs))
    if of == "GatherV2" and len(takes) == 1:
        return  # it always takes rows to look up

    assert kinds.kind(of, inputs, outputs, reads_variable=reads_variable) is works.kind_and_work(counted)[0]


def test_a_sum_of_several_adds_one_less_than_it_takes() -> None:
    assert flops("AddN", [(7, 3)] * 4, (7, 3)) == (0, 3 * 21)


def test_optimizers_of_keras_are_arithmetic_and_assignments_keep_books() -> None:
    assert kinds.operation("AssignVariableOp") is Operation.BOOKKEEPING
    assert works.kind_and_work(computed("AssignSubVariableOp", [(), (7, 3)]))[0] is Operation.ELEMENTWISE
    assert flops("ResourceApplyMomentum", [(), (), (), (7, 3), ()]) == (0, 4 * 21)


def test_precisions_and_bytes_are_those_of_the_arrays() -> None:
    half = Computed("MatMul", (Array((4, 3), "bfloat16"), Array((3, 5), "bfloat16")), (Array((4, 5), "bfloat16"),))
    work = works.kind_and_work(half)[1]

    assert work is not None
    assert (work.precision, work.moved_bytes) == ("bf16", 2 * (12 + 15 + 20))


@pytest.mark.parametrize(
    ("ran", "expected", "fused"),
    [
        ("_MklNativeConv2D", "Conv2D", False),
        ("_MklNativeFusedConv2D", "Conv2D", True),
        ("_MklNativePadWithFusedConv2D", "Conv2D", True),
        ("_FusedMatMul", "MatMul", True),
        ("_MklFusedBatchMatMulV2", "BatchMatMulV2", True),
        ("_MklNativeConv2DBackpropFilterWithBias", "Conv2DBackpropFilter", True),
        ("_MklFusedBatchNormEx", "FusedBatchNorm", True),
        ("FusedBatchNormV3", "FusedBatchNormV3", False),
        ("Relu", "Relu", False),
    ],
)
def test_the_marks_of_library_and_fusion_come_off(ran: str, expected: str, fused: bool) -> None:
    assert (plain(ran), is_fused(ran)) == (expected, fused)
