"""Own times, works, layers and steps of kernels, on short stories with hand-worked numbers."""

import numpy as np
import pytest
from make import KernelStory, run

from tbdprof.analysis.kernels.executions import gather
from tbdprof.analysis.kernels.groups import groups
from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.kernels.layers import layers
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import KernelKind, Operation, Peaks, Phase, SpanKind
from tbdprof.facts.work import Work

COPIED = Work(Operation.COPY, {"elements": 9}, "copy")
PRODUCT = Work(Operation.MATMUL, {"batch": 1, "rows": 10, "columns": 10, "inner": 5}, moved_bytes=800)  # 1,000 FLOPs
RELU = Work(Operation.ACTIVATION, {"elements": 60}, name="relu", moved_bytes=480)
PEAKS = Peaks({"fp32": 1e11}, 1e10, {"fp32": "a probe", "memory": "another"})  # 100 FLOP and 10 bytes a nanosecond


def kernels_of(story: KernelStory, **run_changes: object) -> Kernels:
    found = gather(story.recording(**run_changes))
    assert found is not None
    return found


def by_name(kernels: Kernels, column: str) -> dict[str, object]:
    values = getattr(kernels, column).tolist()
    return {kernels.strings[name]: value for name, value in zip(kernels.name.tolist(), values, strict=True)}


def texts(kernels: Kernels, column: str) -> dict[str, str | None]:
    return {name: kernels.strings[index] if index >= 0 else None for name, index in by_name(kernels, column).items()}


def settled(device: str = "cpu") -> KernelStory:
    story = KernelStory(device=device)
    story.settle()
    return story


def convolution_story() -> KernelStory:
    """A convolution that calls two operators, in a layer, and its gradient in backward."""
    story = settled()
    story.step(0, 1000)
    layer = story.layer("conv1", 0, 130)
    outer = story.operator("conv", Phase.FORWARD, 10, 110, parent=layer, forward=4, work=PRODUCT)
    inner = story.operator("library", Phase.FORWARD, 20, 100, parent=outer, forward=4, work=PRODUCT)
    story.operator("empty", Phase.FORWARD, 30, 50, parent=inner)
    backward = story.operator("conv_backward", Phase.BACKWARD, 400, 500, forward=4)
    story.operator("library_backward", Phase.BACKWARD, 410, 490, parent=backward, work=PRODUCT)
    return story


def test_own_time_is_the_duration_without_the_operators_inside():
    assert by_name(kernels_of(convolution_story()), "own_ns") == {
        "conv": 20, "library": 60, "empty": 20, "conv_backward": 20, "library_backward": 80,
    }  # fmt: skip


def test_a_phase_or_layer_inside_an_operator_is_walked_through():
    story = settled()
    story.step(0, 100)
    outer = story.operator("checkpoint", Phase.BACKWARD, 0, 100)
    phase = story.span(SpanKind.PHASE, "recompute", Phase.RECOMPUTE, 10, 90, parent=outer)
    layer = story.layer("block", 10, 90, Phase.RECOMPUTE, parent=phase)
    story.operator("relu", Phase.RECOMPUTE, 20, 60, parent=layer)

    kernels = kernels_of(story)

    assert by_name(kernels, "own_ns") == {"checkpoint": 60, "relu": 40}
    assert texts(kernels, "layer") == {"checkpoint": None, "relu": "block"}


def test_a_child_that_outlasts_its_operator_takes_only_what_lies_within():
    story = settled()
    story.step(0, 100)
    outer = story.operator("outer", Phase.FORWARD, 0, 50)
    story.operator("inner", Phase.FORWARD, 40, 70, parent=outer)

    assert by_name(kernels_of(story), "own_ns") == {"outer": 40, "inner": 30}


def test_the_outermost_work_counts_once_and_is_shared_by_own_time():
    kernels = kernels_of(convolution_story())

    flops = by_name(kernels, "flops")
    assert [flops[name] for name in ("conv", "library", "empty")] == pytest.approx([200, 600, 200])
    assert flops["library_backward"] == pytest.approx(1000)
    assert np.isnan(flops["conv_backward"])
    assert by_name(kernels, "moved_bytes")["library"] == pytest.approx(480)
    assert texts(kernels, "precision")["empty"] == "fp32"
    assert texts(kernels, "operator")["empty"] == "conv"
    assert kernels.model_flops.sum() == pytest.approx(2000)
    assert by_name(kernels, "operation")["empty"] == Operation.MATMUL


def test_what_copies_or_keeps_books_within_another_work_has_no_part_in_it():
    story = settled()
    story.step(0, 100)
    outer = story.operator("product", Phase.FORWARD, 0, 60, operation=Operation.MATMUL, work=PRODUCT)
    story.operator("empty", Phase.FORWARD, 0, 10, parent=outer, operation=Operation.BOOKKEEPING)
    story.operator("copy", Phase.FORWARD, 10, 30, parent=outer, operation=Operation.COPY, work=COPIED)
    cast = story.operator("cast", Phase.FORWARD, 60, 100, operation=Operation.CAST, work=COPIED)
    story.operator("copy inside", Phase.FORWARD, 60, 90, parent=cast, operation=Operation.COPY)

    flops = by_name(kernels_of(story), "flops")

    assert flops["product"] == 1000
    assert np.isnan([flops["empty"], flops["copy"]]).all()
    assert (flops["cast"], flops["copy inside"]) == (0, 0)


def test_kernels_that_took_no_time_share_equally():
    story = settled()
    story.step(0, 100)
    outer = story.operator("outer", Phase.FORWARD, 5, 5, work=PRODUCT)
    story.operator("inner", Phase.FORWARD, 5, 5, parent=outer)

    assert by_name(kernels_of(story), "flops") == {"outer": 500, "inner": 500}


def test_per_element_counts_are_flops_but_not_the_models():
    story = settled()
    story.step(0, 100)
    story.operator("relu", Phase.FORWARD, 0, 10, work=RELU)
    story.operator("unheard of", Phase.FORWARD, 10, 20, work=Work(Operation.OTHER, {"elements": 9}, name="unheard"))

    kernels = kernels_of(story)

    assert (by_name(kernels, "flops")["relu"], by_name(kernels, "model_flops")["relu"]) == (60, 0)
    assert np.isnan(by_name(kernels, "flops")["unheard of"])


def test_products_done_again_are_flops_but_not_the_models():
    story = settled()
    story.step(0, 100)
    story.operator("product", Phase.RECOMPUTE, 0, 10, work=PRODUCT)

    kernels = kernels_of(story)

    assert (kernels.flops.tolist(), kernels.model_flops.tolist()) == ([1000], [0])


def test_backward_belongs_to_the_layer_of_the_forward_operator_with_its_number():
    assert texts(kernels_of(convolution_story()), "layer") == {
        "conv": "conv1", "library": "conv1", "empty": "conv1", "conv_backward": "conv1", "library_backward": "conv1",
    }  # fmt: skip


def test_of_several_forward_operators_with_a_number_the_last_begun_has_it():
    story = settled()
    story.step(0, 100)
    first = story.layer("first", 0, 20)
    story.operator("size", Phase.FORWARD, 5, 6, parent=first, forward=4)  # needs no gradient, numbered like the next
    second = story.layer("second", 20, 40)
    story.operator("conv", Phase.FORWARD, 25, 35, parent=second, forward=4)
    story.operator("flatten", Phase.FORWARD, 41, 42, parent=second, forward=5)
    story.operator("loss", Phase.FORWARD, 42, 43, forward=5)
    story.operator("conv_backward", Phase.BACKWARD, 50, 60, forward=4)
    story.operator("loss_backward", Phase.BACKWARD, 60, 70, forward=5)

    assert texts(kernels_of(story), "layer") == {
        "size": "first", "conv": "second", "flatten": "second", "loss": None,
        "conv_backward": "second", "loss_backward": None,
    }  # fmt: skip


def test_what_precedes_a_layer_is_not_in_it_though_it_has_its_number():
    story = settled()
    story.step(0, 100)
    story.operator("normalize the images", Phase.OUTSIDE, 0, 5, forward=4)
    layer = story.layer("conv1", 10, 20)
    story.operator("conv", Phase.FORWARD, 10, 20, parent=layer, forward=4)

    assert texts(kernels_of(story), "layer") == {"normalize the images": None, "conv": "conv1"}


def test_the_first_block_settles_and_a_kernel_belongs_to_the_step_it_starts_in():
    story = KernelStory()
    story.step(0, 10, block=4)
    story.step(10, 20, block=4)
    story.step(20, 30, block=5, units=8)
    story.step(35, 45, block=5, units=8)
    for start in (5, 15, 20, 29, 30, 35, 44, 45):
        story.operator(f"at {start}", Phase.FORWARD, start, start + 1)

    kernels = kernels_of(story)

    assert by_name(kernels, "step") == {"at 20": 0, "at 29": 0, "at 35": 1, "at 44": 1}
    assert (kernels.steps, kernels.units, kernels.step_ns.tolist()) == (2, 16, [10, 10])


def test_a_window_of_one_block_gives_nothing():
    story = KernelStory()
    story.step(0, 10)
    story.operator("relu", Phase.FORWARD, 0, 5)

    assert gather(story.recording()) is None


def test_several_windows_follow_each_other():
    first, second = settled(), convolution_story()
    second = KernelStory(first.strings)
    for story, start in ((first, 0), (second, 5000)):
        if story is second:
            story.settle(4000, 4100)
        story.step(start, start + 100)
        story.operator("relu", Phase.FORWARD, start + 10, start + 20, work=RELU)
    recording = Recording(run(), [first.window(1), second.window(3)], first.strings)

    kernels = gather(recording)

    assert kernels is not None
    assert (kernels.steps, kernels.units, kernels.step.tolist()) == (2, 2, [0, 1])
    assert kernels.start_ns.tolist() == [10, 5010]


def test_kernels_are_ordered_by_start_whatever_the_order_of_the_spans():
    story = settled()
    story.step(0, 100)
    for start in (50, 10, 30):
        story.operator(f"at {start}", Phase.FORWARD, start, start + 5)

    assert kernels_of(story).start_ns.tolist() == [10, 30, 50]


def test_looking_changes_nothing_in_the_recording():
    recording = convolution_story().recording()
    texts_before, rows = recording.strings.since(0), recording.windows[0].table("span").copy()

    gather(recording)

    assert recording.strings.since(0) == texts_before
    assert (recording.windows[0].table("span") == rows).all()


def gpu_story() -> KernelStory:
    """A convolution of two kernels, one of them on a second stream, and a copy to the device beside."""
    story = settled("cuda:0")
    story.step(0, 1000)
    layer = story.layer("conv1", 0, 130)
    operator = story.operator("conv", Phase.FORWARD, 10, 60, parent=layer, forward=4, work=PRODUCT)
    inner = story.operator("cudnn", Phase.FORWARD, 20, 50, parent=operator, forward=4)
    story.kernel("copy to the device", 100, 200, kind=KernelKind.COPY, stream=9, moved_bytes=64)
    story.kernel("winograd", 300, 600, span=inner)
    story.kernel("transform", 500, 600, span=operator, stream=8)
    story.kernel("elsewhere", 300, 600, span=inner, device="cuda:1")
    return story


def test_on_a_gpu_kernels_are_what_the_device_reported():
    kernels = kernels_of(gpu_story())

    assert by_name(kernels, "own_ns") == {"copy to the device": 100, "winograd": 300, "transform": 100}
    assert by_name(kernels, "flops")["winograd"] == pytest.approx(750)
    assert by_name(kernels, "moved_bytes")["copy to the device"] == 64
    assert texts(kernels, "layer") == {"copy to the device": None, "winograd": "conv1", "transform": "conv1"}
    assert texts(kernels, "operator") == {"copy to the device": None, "winograd": "conv", "transform": "conv"}
    assert by_name(kernels, "phase")["transform"] == Phase.FORWARD
    assert by_name(kernels, "operation") == {
        "copy to the device": Operation.COPY, "winograd": Operation.MATMUL, "transform": Operation.MATMUL,
    }  # fmt: skip


def test_a_kernel_of_a_gpu_is_of_the_step_that_asked_for_it_however_late_it_runs():
    story = KernelStory(device="cuda:0")
    story.settle(0, 90)
    story.step(100, 200, block=1)
    story.step(210, 1000, block=1)
    for start, launch in ((150, 110), (300, 120), (600, 205), (800, 220), (900, -1)):
        story.kernel(f"{launch}", start, start + 10, launch=launch, thread=1)
    story.kernel("of before", 105, 115, launch=80, thread=1)
    story.kernel("of after", 990, 1100, launch=1000, thread=1)

    assert by_name(kernels_of(story), "step") == {"110": 0, "120": 0, "205": 0, "220": 1, "-1": 1}


@pytest.mark.parametrize("kind", [KernelKind.COPY, KernelKind.SET])
def test_what_is_copied_or_set_within_a_product_has_no_part_in_its_flops(kind):
    story = gpu_story()
    inner = story.spans[-1][0]
    story.kernel("moved", 600, 700, kind=kind, span=inner, moved_bytes=8)
    kernels = kernels_of(story)

    assert by_name(kernels, "flops")["winograd"] == pytest.approx(750)
    assert np.isnan(by_name(kernels, "flops")["moved"])
    assert by_name(kernels, "operation")["moved"] == Operation.COPY
    assert by_name(kernels, "moved_bytes")["moved"] == 8


def test_on_a_gpu_operators_do_not_stand_for_kernels():
    story = gpu_story()
    story.kernels.clear()

    assert gather(story.recording()) is None


@pytest.mark.parametrize("story", [convolution_story(), gpu_story()], ids=["cpu", "gpu"])
def test_sums_over_layers_groups_and_kernels_are_the_same(story):
    kernels = kernels_of(story)
    own = kernels.own_ns.sum() / 1e9

    by_layer, by_group = layers(kernels, PEAKS), groups(kernels, PEAKS, {})

    assert sum(layer.seconds for layer in by_layer) == pytest.approx(own)
    assert sum(group.seconds for group in by_group) == pytest.approx(own)
    assert sum(layer.share for layer in by_layer) == pytest.approx(1)
    flops = np.nansum(kernels.flops)
    assert sum(layer.flops or 0 for layer in by_layer) == pytest.approx(flops)
    assert sum(group.flops or 0 for group in by_group) == pytest.approx(flops)


def test_a_lost_layer_is_seen_as_time_in_no_layer():
    story = convolution_story()
    whole = layers(kernels_of(story), PEAKS)
    story.spans = [row for row in story.spans if row[2] != SpanKind.LAYER]

    lost = layers(kernels_of(story), PEAKS)

    assert [(each.layer, each.seconds) for each in whole] == [("conv1", pytest.approx(200e-9))]
    assert [(each.layer, each.seconds) for each in lost] == [(None, pytest.approx(200e-9))]


def test_a_layer_has_its_time_forward_and_backward_and_utilization_over_what_has_a_count():
    (conv1,) = layers(kernels_of(convolution_story()), PEAKS)

    assert (conv1.forward_seconds, conv1.backward_seconds) == (pytest.approx(100e-9), pytest.approx(100e-9))
    assert conv1.flops == pytest.approx(2000)
    assert conv1.utilization == pytest.approx(2000 / (180 * 100))
    assert conv1.calls == 5
