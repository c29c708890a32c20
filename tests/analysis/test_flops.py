"""The FLOPs of works, each worked out by hand; FLOP = 2 × MAC."""

import re
from math import prod

import pytest

from tbdprof.analysis.kernels import flops
from tbdprof.analysis.kernels.flops import Flops, count
from tbdprof.facts.records import Operation
from tbdprof.facts.work import Work
from tbdprof.suite.layers import Convolution
from tbdprof.suite.resnet50.architecture import layers


def element_wise(name: str, elements: int = 10, *, backward: bool = False, **sizes: int) -> Flops | None:
    return count(Work(Operation.OTHER, {"elements": elements, **sizes}, name=name, backward=backward))


def test_a_convolution_multiplies_every_weight_at_every_position() -> None:
    # 3×3, 2→4 channels, 5×5 padded by 1, batch 3: 4·2·9 = 72 weights at 3·25 = 75 positions.
    work = Work(Operation.CONVOLUTION, {"weight": 72, "positions": 75})

    assert count(work) == Flops(2 * 72 * 75)


def test_a_convolution_has_as_many_products_backward_as_it_computes_gradients() -> None:
    sizes = {"weight": 72, "positions": 75}

    backward = [count(Work(Operation.CONVOLUTION, sizes, backward=True, products=each)) for each in (0, 1, 2)]

    assert backward == [Flops(0), Flops(10_800), Flops(21_600)]


def test_a_grouped_dilated_convolution_with_bias() -> None:
    # 8→12 channels in 4 groups, 3×3 dilated by 2, unpadded, 10×9, batch 2: 12·(8/4)·9 = 216 weights;
    # (10 − 4)·(9 − 4) = 30 places each; the bias is added to 12·60 elements.
    work = Work(Operation.CONVOLUTION, {"weight": 216, "positions": 60, "bias": 720})

    assert count(work) == Flops(25_920, elementwise=720)


def test_a_transposed_convolution_is_laid_at_the_places_of_its_input() -> None:
    # 6→4 channels, 3×3, stride 2, 5×4, batch 3: each of the 3·6·20 inputs meets 4·9 weights.
    work = Work(Operation.CONVOLUTION, {"weight": 6 * 4 * 9, "positions": 3 * 20})

    assert count(work) == Flops(2 * (3 * 6 * 20) * (4 * 9))


def test_a_matrix_product_and_its_two_gradients() -> None:
    sizes = {"batch": 3, "rows": 4, "columns": 5, "inner": 6, "bias": 60}

    assert count(Work(Operation.MATMUL, sizes)) == Flops(2 * 3 * 4 * 5 * 6, elementwise=60)
    assert count(Work(Operation.MATMUL, sizes, backward=True, products=2)) == Flops(1440, elementwise=60)


def test_a_bidirectional_lstm_of_two_layers() -> None:
    # 3 inputs, 5 units: 4·5·(3 + 5) = 160 weights a direction, then 4·5·(10 + 5) = 300; batch 2, 7 time steps.
    sizes = {"weight": 2 * 160 + 2 * 300, "positions": 14}

    assert count(Work(Operation.RECURRENT, sizes, name="lstm")) == Flops(25_760)
    assert count(Work(Operation.RECURRENT, sizes, name="lstm", backward=True, products=2)) == Flops(51_520)


def test_attention_counts_its_scores_again_backward_and_keeps_them_apart() -> None:
    # 2 samples × 3 heads, 4 queries, 5 keys: 120 scores; each 8 MAC to make and 7 to use.
    sizes = {"batch": 6, "queries": 4, "keys": 5, "width": 8, "value_width": 7}

    assert count(Work(Operation.ATTENTION, sizes)) == Flops(2 * 120 * 15, elementwise=6 * 120)
    assert count(Work(Operation.ATTENTION, sizes, backward=True)) == Flops(2 * 3600, 2 * 120 * 8, 8 * 120)


def resnet50(areas: dict[int, int] | None = None) -> int:
    """Return the FLOPs of an image, forward and backward; `areas` replaces those of the maps, by their side."""
    total = 0
    for layer in layers():
        if isinstance(layer, Convolution):
            area = layer.side**2 if areas is None else areas[layer.side]
            sizes = {"weight": prod(layer.shape), "positions": area}
            operation = Operation.CONVOLUTION
        else:
            sizes = {"batch": 1, "rows": 1, "columns": layer.outputs, "inner": layer.inputs}
            operation = Operation.MATMUL
        products = 1 if layer.name == "conv1" else 2  # nobody asks for the gradient of the image
        for work in (Work(operation, sizes), Work(operation, sizes, backward=True, products=products)):
            found = count(work)
            assert found is not None
            total += found.model
    return total


def test_resnet50_has_24_299_077_632_flops_an_image_of_224_pixels() -> None:
    # 4,089,184,256 MACs forward, 118,013,952 of them conv1's.
    assert resnet50() == 24_299_077_632 == 6 * 4_089_184_256 - 2 * 118_013_952


def test_resnet50_at_192_by_160_pixels() -> None:
    # MACs forward, weights × places; the first 1×1 of a stage still works on the map before.
    #   conv1     9,408 ×  96·80      =    72,253,440
    #   stage 1   212,992 ×  48·40, and stage 2's first 32,768                =   471,859,200
    #   stage 2   1,179,648 ×  24·20, and stage 3's first 131,072             =   629,145,600
    #   stage 3   6,946,816 ×  12·10, and stage 4's first 524,288             =   896,532,480
    #   stage 4   14,417,920 ×  6·5   =   432,537,600
    #   fc        2,048,000           sum 2,504,376,320
    areas = {112: 96 * 80, 56: 48 * 40, 28: 24 * 20, 14: 12 * 10, 7: 6 * 5}

    assert resnet50(areas) == 14_881_751_040 == 6 * 2_504_376_320 - 2 * 72_253_440


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [("batch_norm", 60, 90), ("layer_norm", 80, 130), ("relu", 10, 10), ("gelu", 50, 110), ("softmax", 50, 40)],
)
def test_an_element_has_its_documented_count(name: str, forward: int, backward: int) -> None:
    assert element_wise(name) == Flops(0, elementwise=forward)
    assert element_wise(name, backward=True) == Flops(0, elementwise=backward)


def test_pooling_counts_the_window_of_each_element_put_out() -> None:
    assert element_wise("max_pool", window=9) == Flops(0, elementwise=90)
    assert element_wise("max_pool", backward=True, window=9) == Flops(0, elementwise=10)
    assert element_wise("avg_pool", window=49) == Flops(0, elementwise=490)
    assert element_wise("avg_pool", backward=True, window=49) == Flops(0, elementwise=490)


def test_an_optimizer_counts_each_parameter() -> None:
    counts = {name: element_wise(name, 100) for name in ("sgd", "sgd_momentum", "adam", "adamw", "rmsprop")}

    assert {name: found.total for name, found in counts.items() if found} == {
        "sgd": 200,
        "sgd_momentum": 400,
        "adam": 1300,
        "adamw": 1400,
        "rmsprop": 900,
    }


def test_what_is_moved_or_looked_up_has_a_count_and_it_is_none_at_all() -> None:
    moved = [Work(Operation.COPY), Work(Operation.CAST), Work(Operation.EMBEDDING, {"elements": 9}, name="embedding")]

    assert [count(work) for work in moved] == [Flops(0)] * 3


def test_what_has_no_count_is_none_and_never_nothing() -> None:
    assert element_wise("bessel_j0") is None
    assert count(Work(Operation.OTHER, {"elements": 3})) is None
    assert count(Work(Operation.COMMUNICATION, {"elements": 3})) is None


def test_a_size_that_was_not_reported_leaves_no_count() -> None:
    assert count(Work(Operation.CONVOLUTION, {"weight": 72})) is None
    assert count(Work(Operation.MATMUL, {"rows": 4, "columns": 5})) is None
    assert count(Work(Operation.POOLING, {"elements": 5}, name="max_pool")) is None
    assert count(Work(Operation.ACTIVATION, name="relu")) is None


def test_the_total_is_all_that_the_device_computes() -> None:
    assert Flops(100, 20, 3).total == 123


def test_the_published_names_are_those_that_have_a_count() -> None:
    _, _, text = (flops.__doc__ or "").partition("larger of input and output:")
    text, _, _ = text.partition("`backward` means")
    lines = [re.sub(r"\(.*?\)", "", line[19:]) for line in re.sub(r"\(\n?[^)]*\)", "", text).splitlines()]
    published = {name for line in lines for name in re.findall(r"[a-z][a-z_0-9]+", line.partition(";")[0])}

    assert published == set(flops._PER_ELEMENT)
