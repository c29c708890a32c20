"""ResNet-50 is the network it is said to be: its figures are sums over its layers, in every framework."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
import tensorflow as tf
import torch

from tbdprof import suite
from tbdprof.errors import UsageError
from tbdprof.suite.classifier import learning_rate
from tbdprof.suite.classifier.initial import weights
from tbdprof.suite.data import imagenet
from tbdprof.suite.data.inputs import ImageBatch, image_batch
from tbdprof.suite.layers import Convolution, Dense
from tbdprof.suite.resnet50 import SPEC, architecture, on_mxnet, on_tensorflow, on_torch, sample_bytes
from tbdprof.suite.resnet50.architecture import layers
from tbdprof.suite.workload import Learner

SMALL = suite.configure(SPEC, batch_size=2, options={"image_size": 64})


@pytest.fixture(scope="module")
def in_torch() -> on_torch.Workload:
    return on_torch.build(SPEC, SMALL)


@pytest.fixture(scope="module")
def in_mxnet() -> on_mxnet.Workload:
    return on_mxnet.build(SPEC, SMALL)


@pytest.fixture(scope="module")
def in_tensorflow() -> on_tensorflow.Workload:
    return on_tensorflow.build(SPEC, SMALL)


def convolutions(variant: str = "v1.5", image_size: int = 224) -> list[Convolution]:
    return [layer for layer in layers(variant, image_size) if isinstance(layer, Convolution)]


def saved_bytes(image_size: int) -> int:
    """Return what training keeps of one image in fp32, its label's 8 bytes among it.

    Batch normalization keeps its input and, but for a shortcut's (it is added and gone), its output, which the
    in-place ReLU and the next convolution share; max pooling its output and 8-byte indices; the classifier its input
    and the loss its logarithms.
    """
    maps = sum(
        4 * layer.outputs * layer.side**2 * (1 if "downsample" in layer.name else 2)
        for layer in convolutions(image_size=image_size)
    )
    pooled = 64 * ((image_size + 3) // 4) ** 2 * (4 + 8)
    return maps + pooled + 4 * 2048 + 4 * 1000 + 4 * 3 * image_size**2 + 8


@pytest.mark.parametrize("variant", ["v1.5", "v1"])
def test_the_parameters_are_the_sum_over_the_layers(variant: str) -> None:
    every = layers(variant)
    norms = 2 * sum(layer.outputs for layer in convolutions(variant))

    assert len(every) == 54
    assert norms == 53_120
    assert sum(layer.parameters for layer in every) - norms == 25_503_912
    assert sum(layer.parameters for layer in every) == SPEC.parameters == 25_557_032


@pytest.mark.parametrize(("variant", "macs"), [("v1.5", 4_089_184_256), ("v1", 3_857_973_248)])
def test_the_work_is_the_sum_over_the_layers(variant: str, macs: int) -> None:
    assert sum(layer.macs for layer in layers(variant)) == macs


def test_a_steps_flops_leave_the_images_gradient_out() -> None:
    first, *_ = every = layers()

    assert first.macs == 112**2 * 64 * 3 * 7**2
    assert 2 * (3 * sum(layer.macs for layer in every) - first.macs) == 24_299_077_632


def test_the_bytes_of_a_sample_are_what_its_layers_save() -> None:
    assert sample_bytes(224) == saved_bytes(224) == 85_913_512
    assert SPEC.fixed_bytes == 306_684_384


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
    of_the_batch = 4 * 53_120 + 4  # each normalization's mean and deviation, and the loss's weight

    assert loss.ndim == 0
    assert sum(saved.values()) == 2 * saved_bytes(64) + of_the_batch


@pytest.mark.parametrize("variant", ["v1.5", "v1"])
def test_the_layers_are_those_torch_runs(variant: str) -> None:
    model = on_torch.ResNet50(variant).eval()
    seen: dict[str, tuple[tuple[int, ...], int]] = {}

    def note(name: str) -> None:
        def hook(module: torch.nn.Module, _: object, output: torch.Tensor) -> None:
            seen[name] = (tuple(module.weight.shape), output.shape[-1])

        model.get_submodule(name).register_forward_hook(hook)

    table = convolutions(variant, 75)
    for layer in table:
        note(layer.name)
    with torch.no_grad():
        scores = model(torch.zeros(1, 3, 75, 75))

    assert scores.shape == (1, 1000)
    assert seen == {layer.name: (layer.shape, layer.side) for layer in table}
    assert len(seen) == sum(isinstance(module, torch.nn.Conv2d) for module in model.modules())


def test_the_parameters_in_torch(in_torch: on_torch.Workload) -> None:
    trainable = {parameter.untyped_storage().data_ptr(): parameter.numel() for parameter in in_torch.model.parameters()}
    buffers = list(in_torch.model.buffers())

    assert sum(trainable.values()) == 25_557_032
    assert sum(buffer.numel() for buffer in buffers if buffer.is_floating_point()) == 53_120
    assert [buffer.dtype for buffer in buffers if not buffer.is_floating_point()] == [torch.int64] * 53


def test_the_parameters_in_mxnet(in_mxnet: on_mxnet.Workload) -> None:
    every = in_mxnet.model.collect_params().values()

    assert sum(parameter.data().size for parameter in every if parameter.grad_req != "null") == 25_557_032
    assert sum(parameter.data().size for parameter in every if parameter.grad_req == "null") == 53_120


def test_the_parameters_in_tensorflow(in_tensorflow: on_tensorflow.Workload) -> None:
    model = in_tensorflow.model

    assert sum(int(tf.size(weight)) for weight in model.trainable_variables) == 25_557_032
    assert sum(int(tf.size(buffer)) for buffer in model.non_trainable_variables) == 53_120
    assert {variable.dtype for variable in model.variables} == {"float32"}


def test_the_weights_have_one_name_in_every_framework(
    in_torch: on_torch.Workload, in_mxnet: on_mxnet.Workload, in_tensorflow: on_tensorflow.Workload
) -> None:
    named_by_torch = {name for name, _ in in_torch.model.named_parameters()}
    named_by_mxnet = set(in_mxnet.model._collect_params_with_prefix())
    named_by_tensorflow = {variable.path for variable in in_tensorflow.model.variables}
    drawn = {f"{layer.name}.weight" for layer in layers()}

    assert drawn < named_by_torch
    assert drawn < named_by_mxnet
    assert {f"resnet50/{layer.name.replace('.', '/')}/kernel" for layer in layers()} < named_by_tensorflow
    assert "layer3.5.conv2.weight" in drawn
    assert "layer3.5.bn2.gamma" in named_by_mxnet
    assert "resnet50/layer3/5/bn2/gamma" in named_by_tensorflow
    assert any(name.endswith("_layer3_bottleneck5_conv1_weight") for name in in_mxnet.model.collect_params())


def test_torch_and_mxnet_begin_with_the_same_bits(in_torch: on_torch.Workload, in_mxnet: on_mxnet.Workload) -> None:
    of_mxnet = in_mxnet.model._collect_params_with_prefix()
    for name, parameter in in_torch.model.named_parameters():
        assert parameter.detach().numpy().tobytes() == value_of(of_mxnet, name).tobytes(), name


def test_tensorflow_begins_with_the_same_bits_inputs_first(
    in_torch: on_torch.Workload, in_tensorflow: on_tensorflow.Workload
) -> None:
    kernels = {variable.path: variable.numpy() for variable in in_tensorflow.model.trainable_variables}
    for layer in layers():
        values = kernels[f"resnet50/{layer.name.replace('.', '/')}/kernel"]
        outputs_first = values.transpose((3, 2, 0, 1)) if values.ndim == 4 else values.T
        assert np.array_equal(outputs_first, in_torch.model.get_parameter(f"{layer.name}.weight").detach().numpy())


def test_every_framework_trains_on_the_same_bits(
    in_torch: on_torch.Workload, in_mxnet: on_mxnet.Workload, in_tensorflow: on_tensorflow.Workload
) -> None:
    images, labels = in_torch.inputs
    images_of_mxnet, labels_of_mxnet = (array.asnumpy() for array in in_mxnet.inputs)
    images_of_tensorflow, labels_of_tensorflow = (tensor.numpy() for tensor in in_tensorflow.inputs)

    assert images.numpy().tobytes() == images_of_mxnet.tobytes()
    assert images.numpy().tobytes() == images_of_tensorflow.transpose((0, 3, 1, 2)).tobytes()
    assert labels.tolist() == labels_of_mxnet.tolist() == labels_of_tensorflow.tolist()


def test_the_draws_are_normal_of_the_stated_deviation_and_the_seeds_alone() -> None:
    draws = dict(weights(layers(), 0))

    assert float(draws["layer4.0.conv2.weight"].std()) == pytest.approx((2 / (512 * 9)) ** 0.5, rel=2e-3)
    assert float(draws["fc.weight"].std()) == pytest.approx(0.01, rel=2e-3)
    assert list(draws) == [f"{layer.name}.weight" for layer in layers()]
    assert next(weights(layers(), 0))[1].tobytes() == draws["conv1.weight"].tobytes()
    assert next(weights(layers(), 1))[1].tobytes() != draws["conv1.weight"].tobytes()


def test_the_learning_rate_is_linear_in_the_batch(
    in_torch: on_torch.Workload, in_mxnet: on_mxnet.Workload, in_tensorflow: on_tensorflow.Workload
) -> None:
    assert learning_rate(256) == 0.1
    assert learning_rate(4) == 0.0015625
    assert in_torch.optimizer.param_groups[0]["lr"] == in_mxnet.optimizer.learning_rate == 0.1 * 2 / 256
    assert float(in_tensorflow.optimizer.learning_rate) == pytest.approx(0.1 * 2 / 256, rel=1e-7)


@dataclass(frozen=True)
class Reader:
    """A data set's batches and what they were asked for."""

    asked: list[tuple[object, ...]] = field(default_factory=list)
    given: list[ImageBatch] = field(default_factory=list)

    def batches(self, *settings: object) -> Iterator[ImageBatch]:
        self.asked.append(settings)
        while True:
            self.given.append(image_batch(2, 64, 1000, seed=len(self.given)))
            yield self.given[-1]


@pytest.fixture(scope="module", params=suite.frameworks("resnet50"))
def reading(request: pytest.FixtureRequest) -> Iterator[tuple[Learner, Reader]]:
    reader = Reader()
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(imagenet, "batches", reader.batches)
        config = suite.configure(SPEC, batch_size=2, options={"image_size": 64}, data=Path("in"))
        yield suite.build("resnet50", request.param, config), reader


def test_every_step_takes_a_new_batch_of_a_data_set(reading: tuple[Learner, Reader]) -> None:
    workload, reader = reading
    before = len(reader.given)
    consumed = [workload.step() for _ in range(2)]

    assert reader.asked == [(Path("in"), 2, 64, 1000, 0)]
    assert (before, len(reader.given), consumed) == (0, 2, [2, 2])
    assert tuple(workload.inputs) == ()


def test_training_on_a_batch_lowers_its_loss_and_predicting_changes_nothing(reading: tuple[Learner, Reader]) -> None:
    workload, _ = reading
    batch = image_batch(2, 64, 1000, seed=5)
    losses = [workload.train(batch) for _ in range(4)]
    scores = workload.predict(batch.images)

    assert 5 < losses[0] < 10
    assert losses[-1] < losses[0]
    assert (scores.shape, scores.dtype) == ((2, 1000), np.float32)
    assert np.array_equal(scores, workload.predict(batch.images))


def test_bf16_computes_in_bf16_and_keeps_fp32_weights() -> None:
    workload = on_torch.build(SPEC, suite.configure(SPEC, batch_size=2, precision="bf16", options={"image_size": 64}))
    dtypes: list[torch.dtype] = []
    workload.model.layer2.register_forward_hook(lambda _module, _inputs, output: dtypes.append(output.dtype))
    workload.step()

    assert dtypes == [torch.bfloat16]
    assert {parameter.dtype for parameter in workload.model.parameters()} == {torch.float32}


def test_tensorflow_computes_bf16_in_its_mixed_policy() -> None:
    config = suite.configure(SPEC, batch_size=2, precision="bf16", options={"image_size": 64})
    workload = on_tensorflow.build(SPEC, config)
    scores = workload.predict(image_batch(2, 64, 1000, seed=0).images)

    assert {variable.dtype for variable in workload.model.variables} == {"float32"}
    assert workload.model.layer2(tf.zeros((1, 16, 16, 256)), training=False).dtype == tf.bfloat16
    assert scores.dtype == np.float32


def test_mxnet_refuses_bf16_in_one_line() -> None:
    with pytest.raises(UsageError) as caught:
        on_mxnet.build(SPEC, suite.configure(SPEC, precision="bf16"))
    assert str(caught.value) == "resnet50 in MXNet runs in fp32 or fp64: bf16 needs --framework torch"


@pytest.mark.parametrize(("batch_size", "image_size", "fits"), [(1, 32, False), (2, 32, True), (1, 33, True)])
def test_a_single_value_a_channel_is_refused(batch_size: int, image_size: int, fits: bool) -> None:
    config = suite.configure(SPEC, batch_size=batch_size, options={"image_size": image_size})
    if fits:
        architecture.check(config)
        return
    with pytest.raises(UsageError, match="--image-size 33 or more"):
        architecture.check(config)


def test_the_classifier_comes_last() -> None:
    assert layers()[-1] == Dense("fc", 2048, 1000)


def value_of(parameters: dict[str, mx.gluon.Parameter], name: str) -> np.ndarray:
    """Return a Gluon parameter's value by torch's name for it."""
    layer, _, kind = name.rpartition(".")
    is_norm = f"{layer}.gamma" in parameters
    gluon_kind = {"weight": "gamma", "bias": "beta"}[kind] if is_norm else kind
    return parameters[f"{layer}.{gluon_kind}"].data().asnumpy()
