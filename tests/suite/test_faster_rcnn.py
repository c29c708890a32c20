"""Faster R-CNN is the network it is said to be; what it is trained on and judged by is what the papers say."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tbdprof import suite
from tbdprof.errors import UsageError
from tbdprof.suite import faster_rcnn
from tbdprof.suite.checks.learning import Setting
from tbdprof.suite.data import voc
from tbdprof.suite.data.inputs import DetectionBatch
from tbdprof.suite.faster_rcnn import SPEC, anchors, architecture, initial, learning, on_mxnet, on_torch, targets
from tbdprof.suite.faster_rcnn.architecture import layers
from tbdprof.suite.faster_rcnn.average_precision import mean_average_precision
from tbdprof.suite.faster_rcnn.detections import Detections, detections
from tbdprof.suite.faster_rcnn.synthetic import detection_batch
from tbdprof.suite.workload import Config

BY_PART = {  # all, and trained
    "stem": (9_536, 0),
    "layer1": (215_808, 0),
    "layer2": (1_219_584, 1_212_416),
    "layer3": (26_090_496, 26_017_792),
    "layer4": (14_964_736, 14_942_208),
    "proposals": (4_746_806, 4_746_806),
    "heads": (215_145, 215_145),
}


def small(seed: int = 0, **options: int) -> Config:
    return suite.configure(SPEC, seed=seed, options={"image_size": 64, "proposals_after": 60, "regions": 8} | options)


def test_the_parameters_are_the_sum_over_the_layers() -> None:
    every = layers()
    of_parts = {
        part: tuple(
            sum(figure)
            for figure in zip(*((x.parameters, x.trained_parameters) for x in every if x.part == part), strict=True)
        )
        for part in BY_PART
    }
    scales_and_shifts = 2 * sum(layer.outputs for layer in every if layer.normalized)
    frozen_weights = sum(layer.weights for layer in every if not layer.trained)

    assert of_parts == BY_PART
    assert sum(layer.parameters for layer in every) == faster_rcnn.PARAMETERS == 47_462_111
    assert sum(layer.trained_parameters for layer in every) == SPEC.parameters == 47_134_367
    assert scales_and_shifts + frozen_weights == faster_rcnn.FROZEN == 327_744


def test_a_hundred_and_one_layers_are_resnets_own() -> None:
    in_blocks = [layer for layer in layers() if layer.normalized and "downsample" not in layer.name]

    assert len(in_blocks) + 1 == int(SPEC.layers)  # and the classifier


def saved_bytes(workload: on_torch.Workload) -> int:
    """Return what a step in torch keeps for its backward pass beside parameters, and the image with it."""
    kept = {value.untyped_storage().data_ptr() for value in (*workload.model.parameters(), *workload.model.buffers())}
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in kept:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    example = next(workload.batches)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        workload.loss(example)
    return sum(saved.values()) + example.images.nbytes


def test_torch_saves_about_what_the_layers_say() -> None:
    assert architecture.point_values() == faster_rcnn.POINT_VALUES
    assert architecture.region_values() == faster_rcnn.REGION_VALUES
    config = small()
    assert saved_bytes(on_torch.build(SPEC, config)) == pytest.approx(SPEC.sample_bytes(config.options), rel=0.02)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"batch_size": 2}, "faster_rcnn trains on one image at a time: batch size 2 cannot be"),
        ({"options": {"regions": 3}}, "3 regions have no room for a foreground: give --regions 4"),
        (
            {"options": {"proposals_after": 100}},
            "128 regions cannot be sampled from 100 proposals: give --regions 100 or fewer",
        ),
        (
            {"options": {"image_size": 32}},
            "128 regions cannot be sampled from 36 proposals: give --regions 36 or fewer",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(asked: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        architecture.check(suite.configure(SPEC, **asked))
    assert str(caught.value) == message


def test_mxnet_refuses_bf16_in_one_line() -> None:
    with pytest.raises(UsageError) as caught:
        on_mxnet.build(SPEC, suite.configure(SPEC, precision="bf16"))
    assert str(caught.value) == "faster_rcnn in MXNet runs in fp32 or fp64: bf16 needs --framework torch"


def test_the_draws_are_normal_of_the_stated_deviation_and_the_seeds_alone() -> None:
    draws = dict(initial.weights(0))

    assert float(draws["layer4.1.conv2.weight"].std()) == pytest.approx((2 / (512 * 9)) ** 0.5, rel=2e-3)
    assert float(draws["layer4.0.downsample.0.weight"].std()) == pytest.approx((1 / 1024) ** 0.5, rel=2e-3)
    assert float(draws["proposals.conv.weight"].std()) == pytest.approx(0.01, rel=2e-3)
    assert float(draws["deltas.weight"].std()) == pytest.approx(0.001, rel=1e-2)
    assert set(draws["layer3.22.bn3.weight"]) == {np.float32(23**-0.5)}
    assert {name for name in draws if ".bn" not in name} == {f"{layer.name}.weight" for layer in layers()}
    assert next(initial.weights(0))[1].tobytes() == draws["conv1.weight"].tobytes()
    assert next(initial.weights(1))[1].tobytes() != draws["conv1.weight"].tobytes()


def test_a_synthetic_image_holds_its_objects() -> None:
    for seed in range(5):
        batch = detection_batch(96, seed)
        assert batch.images.shape == (1, 3, 96, 137)
        assert 3 <= len(batch.boxes) == len(batch.labels) <= 5
        assert (batch.boxes[:, :2] >= 0).all()
        assert (batch.boxes[:, 2:] <= [137, 96]).all()
        assert (batch.boxes[:, 2:] - batch.boxes[:, :2] >= 12).all()
        assert set(batch.labels) <= set(range(1, 21))


def test_anchors_are_matched_by_their_overlap() -> None:
    every = np.array([[0, 0, 10, 10], [0, 0, 10, 8], [0, 0, 10, 5], [50, 50, 60, 60], [0, 0, 10, 2], [52, 52, 62, 62]])
    boxes = np.array([[0.0, 0, 10, 10], [53, 53, 63, 63]])
    matched, positive, negative = targets.match(every.astype(float), boxes)

    # Overlaps with its object: 1, 0.8, 0.5 (neither), 49 / 151 (neither), 0.2, and 81 / 119, the second object's most.
    assert positive.tolist() == [True, True, False, False, False, True]
    assert negative.tolist() == [False, False, False, False, True, False]
    assert matched[positive].tolist() == [0, 0, 1]


def test_anchors_are_sampled_half_positive_at_most() -> None:
    batch = detection_batch(300, seed=2)
    config = suite.configure(SPEC, seed=2)
    example = targets.example(batch, config, number=0)
    every = anchors.anchors(19, 27)
    _, positive, negative = targets.match(every, example.boxes)
    count = int(example.positive.sum())

    assert (len(example.anchors), len(example.sampled)) == (19 * 27 * 9, 256)
    assert 0 < count == min(int(positive.sum()), 128)
    assert positive[example.sampled[:count]].all()
    assert negative[example.sampled[count:]].all()
    assert len(set(example.sampled)) == 256
    assert example.weights.tolist() == [1 / 256] * 256
    decoded = anchors.decode(example.targets[:count], every[example.sampled[:count]])
    assert all(np.abs(example.boxes - box).max(axis=1).min() < 1e-9 for box in decoded)
    assert sorted(example.priorities) == list(range(len(batch.boxes) + 2000))


def test_where_anchors_are_few_the_sample_has_rows_without_weight() -> None:
    whole = DetectionBatch(np.zeros((1, 3, 64, 64), np.float32), np.array([[0, 0, 64, 64]], np.float32), np.array([1]))
    example = targets.example(whole, small(), number=0)
    _, positive, negative = targets.match(example.anchors, example.boxes)
    found = int(positive.sum() + negative.sum())

    assert found < 256
    assert example.weights.tolist() == [1 / found] * found + [0] * (256 - found)
    assert example.positive[found:].sum() == 0


def test_samples_are_drawn_anew_for_every_image_and_again_for_every_seed() -> None:
    batch = detection_batch(96, seed=0)
    first, again, next_image, next_seed = (
        targets.example(batch, small(seed), number).priorities.tolist()
        for seed, number in ((0, 0), (0, 0), (0, 1), (1, 0))
    )

    assert first == again
    assert first not in (next_image, next_seed)


def test_a_detection_is_its_classs_box_and_the_best_of_its_neighbours() -> None:
    regions = np.array([[10.0, 10, 30, 30], [11, 10, 31, 30], [60, 60, 80, 80]])
    scores, deltas = np.full((3, 21), -9.0), np.zeros((3, 84))
    scores[:, 4] = 9, 8, -9
    scores[2, 0] = 9
    scores[2, 7] = 9 + np.log(0.25)  # a fifth
    deltas[:, 4 * 7] = 5  # half a side to the right, by the first of the deviations
    found = detections((100, 85), regions, scores, deltas)

    assert found.classes.tolist() == [4, 7]
    assert found.boxes.tolist() == [[10, 10, 30, 30], [70, 60, 85, 80]]
    assert found.scores == pytest.approx([1, 0.2], abs=1e-4)


def test_the_average_precision_worked_by_hand() -> None:
    one, two, three = np.array([[0.0, 0, 10, 10], [20, 0, 30, 10], [0, 20, 10, 30]])
    objects = [
        (np.array([one, two]), np.array([1, 1])),
        (np.array([three]), np.array([1])),
        (np.array([one]), np.array([2])),
    ]
    none = Detections(np.zeros((0, 4)), np.zeros(0, np.int64), np.zeros(0))
    # By falling score: right, twice the same (wrong), right, background (wrong); the third object is never found.
    first = Detections(np.array([one, one + 1, two]), np.array([1, 1, 1]), np.array([0.9, 0.8, 0.7]))
    second = Detections(np.array([one]), np.array([1]), np.array([0.6]))

    # Precision 1 up to a recall of 1/3: recalls 0 to 0.3; then 2/3 up to 2/3: 0.4 to 0.6. Class 2 is not found at all.
    expected = (4 * 1 + 3 * 2 / 3) / 11
    assert mean_average_precision([first, second, none], objects) == pytest.approx(expected / 2)
    assert mean_average_precision([first, second, none], [*objects[:2], (three[None], np.array([1]))]) < expected
    right = [Detections(boxes, labels, np.ones(len(labels))) for boxes, labels in objects]
    assert mean_average_precision(right, objects) == 1
    assert mean_average_precision([none] * 3, objects) == 0


def test_every_step_takes_a_new_image_of_a_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    given: list[DetectionBatch] = []

    def read(*settings: object) -> Iterator[DetectionBatch]:
        asked.append(settings)
        while True:
            given.append(detection_batch(64 + 16 * len(given), seed=len(given)))
            yield given[-1]

    monkeypatch.setattr(voc, "batches", read)
    options = {"image_size": 96, "proposals_after": 60, "regions": 8}
    workload = on_torch.build(SPEC, suite.configure(SPEC, options=options, data=Path("in")))
    before = len(given)
    consumed = [workload.step() for _ in range(2)]

    assert asked == [(Path("in"), 96, 160, 0)]
    assert (before, len(given)) == (0, 2)
    assert consumed == [1, 1]
    assert workload.inputs == ()


def test_bf16_computes_in_bf16_and_keeps_boxes_and_weights_in_fp32() -> None:
    workload = on_torch.build(SPEC, suite.configure(SPEC, precision="bf16", options=small().options))
    dtypes: list[torch.dtype] = []
    workload.model.layer4.register_forward_hook(lambda _module, _inputs, output: dtypes.append(output.dtype))
    outputs = []
    workload.model.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    workload.step()

    assert dtypes == [torch.bfloat16]
    assert outputs[0].sample.regions.dtype == torch.float32
    assert {parameter.dtype for parameter in workload.model.parameters()} == {torch.float32}


class Oracle:
    """A learner that finds all objects after so many steps, and none before."""

    def __init__(self, needed: int) -> None:
        self.needed, self.steps = needed, 0
        self.answers = {batch.images.tobytes(): batch for batch in _held_out()}

    def train(self, batch: DetectionBatch) -> float:
        assert batch.images.tobytes() not in self.answers
        self.steps += 1
        return 1 / self.steps

    def predict(self, images: np.ndarray) -> Detections:
        batch = self.answers[images.tobytes()]
        found = slice(None) if self.steps >= self.needed else slice(0, 0)
        return Detections(batch.boxes[found].astype(float), batch.labels[found], np.ones(len(batch.labels[found])))


def _held_out() -> list[DetectionBatch]:
    generated = learning.pictures(128, (0, 11))
    return [next(generated) for _ in range(learning.HELD_OUT)]


@pytest.mark.parametrize(("needed", "passed"), [(6, True), (9, False)])
def test_the_check_passes_who_finds_the_held_out_objects(needed: int, passed: bool) -> None:
    steps: list[int] = []
    learned = learning.CHECK.run(lambda _: Oracle(needed), Setting(steps=8), lambda step, _: steps.append(step))

    assert (learned.passed, learned.last.quality) == (passed, float(passed))
    assert [point.step for point in learned.curve] == [0, 2, 4, 6, 8]
    assert learned.last.loss == pytest.approx((1 / 7 + 1 / 8) / 2)
    assert 0 < learned.chance < 0.3
    assert steps == list(range(1, 9))
