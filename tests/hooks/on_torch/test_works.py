import math
from dataclasses import replace

import pytest

from tbdprof.analysis.kernels.flops import count
from tbdprof.facts.records import Operation
from tbdprof.facts.work import Work, parse
from tbdprof.hooks.on_torch.flops import works
from tbdprof.hooks.on_torch.flops.operands import Argument, Operand
from tbdprof.hooks.on_torch.flops.works import has_work, kind_and_text, kind_and_work

FP32 = 4  # bytes


def fp32(*shape: int) -> Operand:
    return Operand(shape, "float32", FP32)


def indices(*shape: int) -> Operand:
    return Operand(shape, "int64", 8)


def work_of(name: str, *arguments: Argument) -> Work:
    _, work = kind_and_work(name, arguments)
    assert work is not None
    return work


def model_flops(work: Work) -> int:
    flops = count(work)
    assert flops is not None
    return flops.model


def test_a_convolution_is_counted_by_its_weight_and_the_places_it_is_laid_at() -> None:
    # 2 images of 9×11, groups of 2, kernel 3×3 with gaps of 2 (5 wide), 2 of padding, stride 2: 5×6 places.
    settings = ((2, 2), (2, 2), (2, 2), False, (0, 0), 2)
    work = work_of("aten::convolution", fp32(2, 4, 9, 11), fp32(8, 2, 3, 3), fp32(8), *settings)
    assert work.operation is Operation.CONVOLUTION
    assert work.sizes == {"weight": 8 * 2 * 9, "positions": 2 * 5 * 6, "bias": 2 * 8 * 5 * 6}
    assert work.moved_bytes == FP32 * (2 * 4 * 9 * 11 + 8 * 2 * 9 + 8 + 2 * 8 * 5 * 6)
    assert model_flops(work) == 2 * 144 * 60


def test_a_transposed_convolution_is_laid_at_every_place_of_its_input() -> None:
    # 5×6 to (5-1)·2 - 2 + 2 + 1 + 1 = 10 and (6-1)·2 - 2 + 1 + 1 + 1 = 11; 3 outputs of each of 2 groups.
    settings = ((2, 2), (1, 1), (1, 1), True, (1, 1), 2)
    work = work_of("aten::convolution", fp32(2, 8, 5, 6), fp32(8, 3, 3, 2), fp32(6), *settings)
    assert work.sizes == {"weight": 8 * 3 * 6, "positions": 2 * 5 * 6, "bias": 2 * 6 * 10 * 11}


@pytest.mark.parametrize(("mask", "products", "bias"), [((1, 1, 1), 2, 480), ((0, 1, 0), 1, 0), ((0, 0, 1), 0, 480)])
def test_a_convolutions_gradient_has_a_product_for_each_that_is_wanted(
    mask: tuple[int, ...], products: int, bias: int
) -> None:
    settings = ((8,), (2, 2), (2, 2), (2, 2), False, (0, 0), 2, mask)
    work = work_of("aten::convolution_backward", fp32(2, 8, 5, 6), fp32(2, 4, 9, 11), fp32(8, 2, 3, 3), *settings)
    assert (work.backward, work.products, work.sizes.get("bias", 0)) == (True, products, bias)
    assert model_flops(work) == products * 2 * 144 * 60


def test_libraries_convolutions_have_the_sizes_of_the_one_that_calls_them() -> None:
    given, weight, bias = fp32(2, 4, 9, 11), fp32(8, 2, 3, 3), fp32(8)
    stride, padding, dilation = (2, 2), (1, 1), (1, 1)
    wanted = work_of("aten::convolution", given, weight, bias, stride, padding, dilation, False, (0, 0), 2)
    assert work_of("aten::mkldnn_convolution", given, weight, bias, padding, stride, dilation, 2) == wanted
    assert work_of("aten::cudnn_convolution_relu", given, weight, bias, stride, padding, dilation, 2) == wanted
    alone = work_of("aten::cudnn_convolution", given, weight, padding, stride, dilation, 2, False, False, True)
    assert alone.sizes == {"weight": wanted.sizes["weight"], "positions": wanted.sizes["positions"]}


@pytest.mark.parametrize(
    ("name", "arguments", "sizes"),
    [
        ("aten::mm", (fp32(3, 5), fp32(5, 7)), (1, 3, 7, 5, 0)),
        ("aten::addmm", (fp32(7), fp32(3, 5), fp32(5, 7), 1, 1), (1, 3, 7, 5, 21)),
        ("aten::addmm_", (fp32(3, 7), fp32(3, 5), fp32(5, 7), 1, 1), (1, 3, 7, 5, 21)),
        ("aten::bmm", (fp32(2, 3, 5), fp32(2, 5, 7)), (2, 3, 7, 5, 0)),
        ("aten::baddbmm", (fp32(2, 3, 7), fp32(2, 3, 5), fp32(2, 5, 7), 1, 1), (2, 3, 7, 5, 42)),
        ("aten::mv", (fp32(3, 5), fp32(5)), (1, 3, 1, 5, 0)),
        ("aten::dot", (fp32(5), fp32(5)), (1, 1, 1, 5, 0)),
        ("aten::addr", (fp32(3, 7), fp32(3), fp32(7)), (1, 3, 7, 1, 21)),
    ],
)
def test_products_of_matrices_have_batch_rows_columns_inner(
    name: str, arguments: tuple[Argument, ...], sizes: tuple[int, ...]
) -> None:
    work = work_of(name, *arguments)
    assert work.operation is Operation.MATMUL
    assert [work.sizes.get(each, 0) for each in ("batch", "rows", "columns", "inner", "bias")] == list(sizes)
    read = sum(each.bytes for each in arguments if isinstance(each, Operand))
    assert work.moved_bytes == read + FP32 * math.prod(sizes[:3])


@pytest.mark.parametrize("variant", ["flash_attention_for_cpu", "flash_attention", "efficient_attention"])
def test_attention_of_every_backend_is_the_same_work(variant: str) -> None:
    # Two heads of three samples; one group of keys for two heads of queries changes nothing.
    queries, keys, values = fp32(3, 2, 5, 8), fp32(3, 1, 7, 8), fp32(3, 1, 7, 4)
    forward = work_of(f"aten::_scaled_dot_product_{variant}", queries, keys, values, 0.0, False)
    backward = work_of(f"aten::_scaled_dot_product_{variant}_backward", fp32(3, 2, 5, 4), queries, keys, values)
    sizes = {"batch": 6, "queries": 5, "keys": 7, "width": 8, "value_width": 4}
    assert forward.sizes == backward.sizes == sizes
    assert model_flops(forward) == 2 * 6 * 5 * 7 * (8 + 4)
    assert model_flops(backward) == 2 * model_flops(forward)


def test_a_grouped_product_takes_each_row_once() -> None:
    rows, weights = fp32(12, 5), fp32(3, 5, 7)
    assert model_flops(work_of("aten::_grouped_mm", rows, weights, indices(3))) == 2 * 12 * 5 * 7
    assert model_flops(work_of("aten::_grouped_mm", fp32(5, 12), fp32(12, 7), indices(3))) == 2 * 12 * 5 * 7
    assert model_flops(work_of("aten::_grouped_mm", fp32(3, 4, 5), weights)) == 2 * 12 * 5 * 7


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("aten::addmm_", True),
        ("aten::linear", False),  # calls one
        ("aten::_thnn_fused_lstm_cell", False),  # what a cell computes besides
        ("aten::_flash_attention_forward", True),
        ("quantized::linear_dynamic", True),
        ("quantized::linear_prepack", False),
        ("aten::relu", False),
    ],
)
def test_products_are_told_from_what_calls_them(name: str, is_one: bool) -> None:
    assert works.is_product(name) == is_one


def test_attention_within_attention_is_of_its_kind() -> None:
    assert works.operation_of("aten::_flash_attention_forward") is Operation.ATTENTION


def test_a_recurrent_layer_is_the_same_in_one_operator_or_in_one_for_each_layer() -> None:
    hidden, gates, inner, steps, batch = 6, 24, 5, 3, 2
    biases, state = (fp32(gates), fp32(gates)), fp32(batch, hidden)
    matrices = (fp32(gates, inner), fp32(gates, hidden))
    layer = work_of("aten::mkldnn_rnn_layer", fp32(steps, batch, inner), *matrices, *biases, state, state, False)
    whole = work_of("aten::_cudnn_rnn", fp32(steps, batch, inner), (*matrices, *biases), 4, None, state, state, 2, 6, 0)
    packed = work_of("aten::_cudnn_rnn", fp32(steps * batch, inner), (*matrices, *biases), 4, None, state, state, 2, 6)
    sizes = {"weight": gates * (inner + hidden), "positions": steps * batch, "bias": steps * batch * gates}
    assert layer.sizes == whole.sizes == packed.sizes == sizes
    gradient = work_of("aten::mkldnn_rnn_layer_backward", fp32(steps, batch, inner), *matrices, *biases, state, state)
    assert model_flops(gradient) == 2 * model_flops(layer)


def test_batch_norm_takes_the_batchs_own_statistics_where_it_trains() -> None:
    channel = fp32(4)
    arguments = (fp32(2, 4, 6, 6), channel, channel, channel, channel)
    training, evaluating = (work_of("aten::native_batch_norm", *arguments, flag, 0.1, 1e-5) for flag in (True, False))
    assert (training.name, evaluating.name) == ("batch_norm", "batch_norm_inference")
    assert training.sizes == {"elements": 288}
    assert training.moved_bytes == FP32 * (288 + 4 * 4 + 288)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "ceil", "places"),
    [
        ((3, 3), (2, 2), (1, 1), False, 4 * 5),  # (7+2-3)//2+1 = 4, (9+2-3)//2+1 = 5
        ((3, 3), (), (0, 0), False, 2 * 3),  # no stride: the kernel's
        ((2, 2), (2, 2), (0, 0), True, 4 * 5),
        ((3, 3), (4, 4), (1, 1), True, 2 * 3),  # (7+2-3+3)//4+1 = 3, but 8 = 7 + 1 is beyond the end: 2
    ],
)
def test_pooling_is_counted_by_its_output_and_window(
    kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...], ceil: bool, places: int
) -> None:
    given = fp32(2, 4, 7, 9)
    work = work_of("aten::max_pool2d_with_indices", given, kernel, stride, padding, (1, 1), ceil)
    assert work.sizes == {"elements": 2 * 4 * places, "window": math.prod(kernel)}
    assert work.moved_bytes == given.bytes + 2 * 4 * places * (FP32 + 8)


def test_elementwise_operators_are_as_large_as_all_operands_together() -> None:
    work = work_of("aten::add", fp32(3, 1, 5), fp32(4, 1), 1)
    assert (work.name, work.sizes) == ("add", {"elements": 3 * 4 * 5})
    assert work.moved_bytes == FP32 * (15 + 4 + 60)
    assert work_of("aten::add_", fp32(3, 4), fp32(3, 4), 1) == work_of("aten::add", fp32(3, 4), fp32(3, 4), 1)


def test_updates_in_one_operator_are_counted_by_their_parameters() -> None:
    weights = (fp32(3, 4), fp32(5))
    adam = work_of("aten::_fused_adam_", weights, weights, weights, weights, (), (fp32(), fp32()), 1e-3, 0.9)
    assert (adam.operation, adam.name, adam.sizes) == (Operation.OPTIMIZER, "adam", {"elements": 17})
    assert adam.moved_bytes == FP32 * ((4 + 3) * 17 + 2 * 2)  # gradients are read alone
    assert work_of("aten::_fused_sgd_", weights, weights, weights, 0.0).name == "sgd_momentum"
    assert work_of("aten::_fused_sgd_", weights, weights, (), 0.0).name == "sgd"
    assert work_of("aten::_foreach_add_", weights, weights, 1).sizes == {"elements": 17}


def test_embedding_moves_what_it_looks_up_and_its_gradient_the_whole_table() -> None:
    forward = work_of("aten::embedding", fp32(100, 4), indices(2, 3), -1, False, False)
    backward = work_of("aten::embedding_dense_backward", fp32(2, 3, 4), indices(2, 3), 100, -1, False)
    assert forward.sizes == backward.sizes == {"elements": 24}
    assert forward.moved_bytes == 6 * 8 + 2 * 24 * FP32
    assert backward.moved_bytes == 6 * 8 + 24 * FP32 + 100 * 4 * FP32
    assert forward.precision == "fp32"


def test_reductions_are_counted_by_what_they_read() -> None:
    work = work_of("aten::sum", fp32(6, 12), (0,), True, None)
    assert (work.name, work.sizes, work.moved_bytes) == ("sum", {"elements": 72}, FP32 * (72 + 12))
    assert work_of("aten::sum", fp32(6, 12), None).moved_bytes == FP32 * (72 + 1)
    norm = work_of("aten::linalg_vector_norm", fp32(6, 12), 2.0, (1,), False, None)
    assert (norm.name, norm.sizes, norm.moved_bytes) == ("norm", {"elements": 72}, FP32 * (72 + 6))
    assert work_of("aten::_foreach_norm", (fp32(6, 12), fp32(3)), 2.0).moved_bytes == FP32 * (75 + 2)


def test_losses_are_counted_by_samples_or_elements() -> None:
    assert work_of("aten::nll_loss_forward", fp32(6, 10), indices(6), None, 1, -100).sizes == {"elements": 6}
    gradient = work_of("aten::nll_loss_backward", fp32(), fp32(6, 10), indices(6), None, 1, -100, fp32())
    assert (gradient.backward, gradient.sizes) == (True, {"elements": 6})
    assert work_of("aten::mse_loss", fp32(6, 10), fp32(6, 10), 1).sizes == {"elements": 60}


def test_copies_write_without_reading_what_they_overwrite() -> None:
    half = Operand((3, 5), "bfloat16", 2)
    assert work_of("aten::copy_", fp32(3, 5), half, False).moved_bytes == 15 * (4 + 2)
    assert work_of("aten::zero_", fp32(3, 5)).moved_bytes == 15 * 4
    assert work_of("aten::_to_copy", fp32(3, 5), 15).moved_bytes == 15 * (4 + 2)


def test_precision_is_that_of_the_first_floating_point_operand() -> None:
    half, double = Operand((3, 3), "bfloat16", 2), Operand((3, 3), "float64", 8)
    assert work_of("aten::mm", half, half).precision == "bf16"
    assert work_of("aten::mm", double, double).precision == "fp64"
    assert work_of("aten::where", Operand((3, 3), "bool", 1), double, double).precision == "fp64"


def test_only_float32_products_become_tf32() -> None:
    def precision(name: str, operand: Operand) -> str:
        _, text = kind_and_text(name, (operand, operand), tf32=True)
        assert text is not None
        return parse(text).precision

    square = fp32(3, 3)
    assert precision("aten::mm", square) == "tf32"
    assert precision("aten::mm", replace(square, dtype="float64")) == "fp64"
    assert precision("aten::mul", square) == "fp32"


@pytest.mark.parametrize("name", ["aten::conv2d", "aten::linear", "aten::lstm", "aten::empty", "AddBackward0", "add"])
def test_what_only_calls_others_or_is_no_operator_has_no_work(name: str) -> None:
    assert not has_work(name)
    assert kind_and_work(name, (fp32(2, 3), fp32(2, 3)))[1] is None


def test_kinds_are_reported_where_there_is_no_work() -> None:
    kinds = {"aten::conv2d": Operation.CONVOLUTION, "aten::lstm": Operation.RECURRENT, "aten::sort": Operation.OTHER}
    kinds |= dict.fromkeys(("aten::empty", "aten::view", "aten::resize_"), Operation.BOOKKEEPING)
    kinds |= dict.fromkeys(("gloo:all_reduce", "c10d::allreduce_", "nccl:broadcast"), Operation.COMMUNICATION)
    assert {name: kind_and_work(name, ())[0] for name in kinds} == kinds


def test_arguments_of_another_overload_leave_the_work_unknown() -> None:
    assert kind_and_work("aten::convolution", (fp32(2, 4, 9, 9), fp32(8, 4, 3, 3))) == (Operation.CONVOLUTION, None)
    assert kind_and_work("aten::mm", (None, fp32(3, 3))) == (Operation.MATMUL, None)
    assert kind_and_work("aten::convolution_backward", (fp32(2, 8, 5, 6),) * 3 + (None,) * 8)[1] is None


def test_a_number_of_pythons_decides_neither_size_nor_precision_of_what_is_made() -> None:
    scalar = Operand((), "float64", 8)
    work = work_of("aten::mul", Operand((10,), "bfloat16", 2), scalar)
    assert (work.moved_bytes, work.precision) == (10 * 2 + 8 + 10 * 2, "bf16")
    assert work_of("aten::mul", scalar, fp32(10)).precision == "fp32"
    assert work_of("aten::mul", scalar, scalar).moved_bytes == 3 * 8


@pytest.mark.parametrize("name", ["gt", "eq", "logical_and", "isnan"])
def test_what_computes_truths_writes_a_byte_an_element(name: str) -> None:
    assert work_of(f"aten::{name}", fp32(10), Operand((), "float64", 8)).moved_bytes == 10 * 4 + 8 + 10


def test_looking_at_a_tensor_is_bookkeeping() -> None:
    names = "resolve_conj resolve_neg conj item _local_scalar_dense _nnz _indices _values sparse_dim dense_dim"
    assert {works.operation_of(f"aten::{name}") for name in names.split()} == {Operation.BOOKKEEPING}
