"""Inception-v3 is the network it is said to be: its figures are sums over its layers, in every framework."""

import numpy as np
import pytest
import torch

from tbdprof import suite
from tbdprof.analysis.kernels.flops import count
from tbdprof.errors import UsageError
from tbdprof.facts.records import Strings
from tbdprof.facts.work import parse
from tbdprof.hooks import load
from tbdprof.suite.classifier.initial import weights
from tbdprof.suite.data.inputs import image_batch
from tbdprof.suite.inception_v3 import SPEC, on_mxnet, on_torch
from tbdprof.suite.inception_v3.architecture import check, layers, saved_bytes
from tbdprof.suite.layers import Convolution, Dense

DEFAULT = suite.configure(SPEC, batch_size=2)


@pytest.fixture(scope="module")
def in_torch() -> on_torch.Workload:
    return on_torch.build(SPEC, DEFAULT)


def convolutions(image_size: int = 299) -> list[Convolution]:
    return [layer for layer in layers(image_size) if isinstance(layer, Convolution)]


def test_the_parameters_are_the_sum_over_the_layers() -> None:
    auxiliary = sum(layer.parameters for layer in layers() if layer.name.startswith("auxiliary"))

    assert sum(layer.parameters for layer in layers()) == SPEC.parameters == 27_161_264
    assert SPEC.parameters - auxiliary == 23_834_568
    assert SPEC.fixed_bytes == 12 * 27_161_264


def test_the_maps_are_as_large_as_published() -> None:
    sides = {layer.name: layer.side for layer in convolutions()}

    assert [sides[f"stem.conv{number}.conv"] for number in range(1, 6)] == [149, 147, 147, 73, 71]
    assert sides["lower.mixed_5d.branch1x1.0.conv"] == 35
    assert sides["lower.mixed_6e.branch7x7.2.conv"] == 17
    assert sides["upper.mixed_7c.branch3x3.1.row.0.conv"] == 8
    assert sides["auxiliary.conv2.conv"] == 1


def test_a_layers_work_is_by_its_definition() -> None:
    first, *_ = layers()
    by_name = {layer.name: layer for layer in layers()}

    assert first.macs == 149**2 * 32 * 3 * 3**2
    assert by_name["lower.mixed_6b.branch7x7.1.conv"].macs == 17**2 * 128 * 128 * 7
    assert by_name["auxiliary_fc"] == Dense("auxiliary_fc", 768, 1000)
    assert by_name["fc"] == Dense("fc", 2048, 1000)


@pytest.mark.parametrize("image_size", [299, 331])
def test_the_layers_are_those_torch_runs(image_size: int) -> None:
    model = on_torch.InceptionV3().eval()
    seen: dict[str, tuple[tuple[int, ...], int]] = {}

    def note(name: str) -> None:
        def hook(module: torch.nn.Module, _: object, output: torch.Tensor) -> None:
            assert output.shape[-1] == output.shape[-2]
            seen[name] = (tuple(module.weight.shape), output.shape[-1])

        model.get_submodule(name).register_forward_hook(hook)

    table = convolutions(image_size)
    for layer in table:
        note(layer.name)
    with torch.no_grad():
        scores, auxiliary = model(torch.zeros(1, 3, image_size, image_size))

    assert scores.shape == auxiliary.shape == (1, 1000)
    assert seen == {layer.name: (layer.shape, layer.side) for layer in table}
    assert len(seen) == sum(isinstance(module, torch.nn.Conv2d) for module in model.modules()) == 96


def test_torch_saves_what_the_layers_say(in_torch: on_torch.Workload) -> None:
    model = in_torch.model
    kept = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in kept:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = in_torch.loss(*in_torch.inputs)
    norms = sum(layer.outputs for layer in convolutions())
    of_the_batch = 4 * 2 * norms + 2 * 4  # each normalization's mean and deviation, and each loss's weight

    assert loss.ndim == 0
    assert sum(saved.values()) == 2 * SPEC.sample_bytes(DEFAULT.options) + of_the_batch


def test_without_dropout_its_mask_is_not_kept() -> None:
    assert saved_bytes(299, dropout=True) - saved_bytes(299, dropout=False) == 4 * 2048


def test_the_parameters_in_torch(in_torch: on_torch.Workload) -> None:
    trainable = {parameter.untyped_storage().data_ptr(): parameter.numel() for parameter in in_torch.model.parameters()}

    assert sum(trainable.values()) == 27_161_264


def test_the_draws_are_normal_of_the_stated_deviation_and_the_seeds_alone() -> None:
    draws = dict(weights(layers(), 0))

    assert float(draws["lower.mixed_6e.branch7x7.1.conv.weight"].std()) == pytest.approx((2 / 1344) ** 0.5, rel=5e-3)
    assert float(draws["auxiliary_fc.weight"].std()) == pytest.approx(0.01, rel=5e-3)
    assert list(draws) == [f"{layer.name}.weight" for layer in layers()]
    assert next(weights(layers(), 1))[1].tobytes() != draws["stem.conv1.conv.weight"].tobytes()


def test_dropout_is_the_seeds_and_drops_half_of_the_features() -> None:
    kept: list[torch.Tensor] = []
    for _ in range(2):
        workload = on_torch.build(SPEC, DEFAULT)
        workload.model.dropout.register_forward_hook(lambda _module, _inputs, output: kept.append(output != 0))
        with torch.no_grad():
            workload.loss(*workload.inputs)

    assert 0.45 < float(kept[0].float().mean()) < 0.55
    assert torch.equal(kept[0], kept[1])


def test_the_auxiliary_classifier_takes_part_in_training_by_its_weight(in_torch: on_torch.Workload) -> None:
    images, labels = in_torch.inputs
    with torch.no_grad():
        torch.manual_seed(0)
        scores, auxiliary = in_torch.model(images)
        torch.manual_seed(0)
        loss = in_torch.loss(images, labels)
    cross_entropy = torch.nn.functional.cross_entropy

    assert float(loss) == pytest.approx(float(cross_entropy(scores, labels) + 0.4 * cross_entropy(auxiliary, labels)))


@pytest.mark.parametrize("framework", ["torch", "mxnet"])
def test_a_recorded_steps_flops_are_the_sum_over_the_layers(framework: str) -> None:
    first, *_ = every = layers()

    assert recorded_flops(framework) == 2 * 2 * (3 * sum(layer.macs for layer in every) - first.macs)


def recorded_flops(framework: str) -> int:
    """Return the FLOPs of the products that a hook records in a step on two images."""
    workload, hook, strings = suite.build("inception_v3", framework, DEFAULT), load(framework), Strings()
    hook.attach()
    try:
        hook.watch([workload.model], [workload.optimizer])
        workload.step()
        hook.start("kernels")
        workload.step()
        hook.mark_step()
        hook.stop()
        spans = hook.drain(strings).tables["span"]
    finally:
        hook.close()
    parents = {int(row["id"]): row for row in spans}
    # An operator within one that is counted is part of it.
    outermost = [row for row in spans if row["work"] >= 0 and parents.get(int(row["parent"]), {"work": -1})["work"] < 0]
    counted = [count(parse(strings[row["work"]])) for row in outermost]
    return sum(flops.model for flops in counted if flops is not None)


@pytest.mark.parametrize(
    ("batch_size", "image_size", "message"),
    [
        (2, 298, "--image-size 298 leaves the auxiliary classifier nothing to look at: give 299 or more"),
        (1, 299, "batch size 1 leaves batch normalization one value a channel: give --batch-size 2 or more"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(batch_size: int, image_size: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(suite.configure(SPEC, batch_size=batch_size, options={"image_size": image_size}))
    assert str(caught.value) == message


def test_mxnet_refuses_bf16_in_one_line() -> None:
    with pytest.raises(UsageError) as caught:
        on_mxnet.build(SPEC, suite.configure(SPEC, precision="bf16"))
    assert str(caught.value) == "inception_v3 in MXNet runs in fp32 or fp64: bf16 needs --framework torch"


def test_predicting_neither_drops_nor_trains(in_torch: on_torch.Workload) -> None:
    images = image_batch(1, 299, 1000, seed=1).images
    scores = in_torch.predict(images)

    assert (scores.shape, scores.dtype) == ((1, 1000), np.float32)
    assert np.array_equal(scores, in_torch.predict(images))
    assert in_torch.model.training
