"""WGAN-GP's networks are what they are said to be: figures are sums over layers, in every framework."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from tbdprof import suite
from tbdprof.errors import UsageError
from tbdprof.suite.layers import Dense
from tbdprof.suite.wgan import SPEC, architecture, initial, learning_rate, on_mxnet, on_tensorflow, on_torch
from tbdprof.suite.wgan.architecture import NOISE, Convolution, Layer, Normalization, macs, parameters
from tbdprof.suite.wgan.pictures import synthetic

WIDTH = 4
SMALL = suite.configure(SPEC, batch_size=2, options={"width": WIDTH, "critic_steps": 2})
NETWORKS: dict[str, Callable[[int], tuple[Layer, ...]]] = {
    "generator": architecture.generator,
    "critic": architecture.critic,
}


@pytest.fixture(scope="module")
def in_torch() -> on_torch.Workload:
    return on_torch.build(SPEC, SMALL)


@pytest.fixture(scope="module")
def in_mxnet() -> on_mxnet.Workload:
    return on_mxnet.build(SPEC, SMALL)


@pytest.fixture(scope="module")
def in_tensorflow() -> on_tensorflow.Workload:
    return on_tensorflow.build(SPEC, SMALL)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weighted(layers: tuple[Layer, ...]) -> list[Convolution | Dense]:
    return [layer for layer in layers if not isinstance(layer, Normalization)]


def test_the_parameters_are_the_sum_over_the_layers() -> None:
    assert parameters(architecture.generator()) == 8_540_483
    assert parameters(architecture.critic()) == 7_491_841
    assert SPEC.parameters == 8_540_483 + 7_491_841
    assert SPEC.fixed_bytes == 4 * 4 * SPEC.parameters


def test_each_network_has_fourteen_layers_with_weights() -> None:
    assert SPEC.layers == "+".join(str(len(weighted(layers(64)))) for layers in NETWORKS.values())


def test_the_work_of_a_forward_pass_is_the_sum_over_the_layers() -> None:
    """By hand: each block's two 3×3 convolutions and its 1×1, at the side they work at, and both ends."""
    doubled = [(512, 512, 8), (512, 256, 16), (256, 128, 32), (128, 64, 64)]
    halved = [(64, 128, 64), (128, 256, 32), (256, 512, 16), (512, 512, 8)]
    up = sum((9 * i * o + 9 * o * o + i * o) * side**2 for i, o, side in doubled)
    down = sum((9 * i * i + 9 * i * o) * side**2 + i * o * (side // 2) ** 2 for i, o, side in halved)

    assert macs(architecture.generator()) == up + 128 * 8192 + 64 * 3 * 9 * 64**2
    assert macs(architecture.critic()) == down + 8192 + 64 * 3 * 9 * 64**2


def test_the_layers_are_those_torch_runs_at_the_papers_width() -> None:
    with torch.device("meta"):
        networks = {"generator": on_torch.Generator(64), "critic": on_torch.Critic(64)}
        given = {"generator": torch.zeros(2, NOISE), "critic": torch.zeros(2, 3, 64, 64)}
    for name, network in networks.items():
        seen: dict[str, tuple[tuple[int, ...], int]] = {}
        table = {layer.name: layer for layer in weighted(NETWORKS[name](64))}
        for layer in table:
            module = network.get_submodule(layer)
            module.register_forward_hook(
                lambda module, _, output, layer=layer, seen=seen: seen.update(
                    {layer: (tuple(module.weight.shape), output.shape[-1])}
                )
            )
        answer = network(given[name])

        assert answer.shape == ((2, 3, 64, 64) if name == "generator" else (2,))
        assert seen == {
            layer: (facts.shape, facts.side if isinstance(facts, Convolution) else facts.outputs)
            for layer, facts in table.items()
        }
        assert sum(each.numel() for each in network.parameters()) == parameters(NETWORKS[name](64))
        assert list(network.buffers()) == []


def test_the_parameters_in_every_framework(
    in_torch: on_torch.Workload, in_mxnet: on_mxnet.Workload, in_tensorflow: on_tensorflow.Workload
) -> None:
    for number, layers in enumerate(NETWORKS.values()):
        of_mxnet = in_mxnet.model[number].collect_params().values()
        of_keras = in_tensorflow.model[number]

        assert sum(each.numel() for each in in_torch.model[number].parameters()) == parameters(layers(WIDTH))
        assert sum(each.data().size for each in of_mxnet if each.grad_req != "null") == parameters(layers(WIDTH))
        assert sum(int(np.prod(each.shape)) for each in of_keras.trainable_variables) == parameters(layers(WIDTH))
        assert of_keras.non_trainable_variables == []


def test_mxnets_extras_are_batch_normalizations_running_statistics(in_mxnet: on_mxnet.Workload) -> None:
    generator, critic = ([each for each in net.collect_params().values() if each.grad_req == "null"]
                         for net in in_mxnet.model)  # fmt: skip
    norms = [layer for layer in architecture.generator(WIDTH) if isinstance(layer, Normalization)]

    assert critic == []
    assert sum(each.data().size for each in generator) == sum(layer.parameters for layer in norms)


def test_every_framework_begins_with_the_same_bits(
    in_torch: on_torch.Workload, in_mxnet: on_mxnet.Workload, in_tensorflow: on_tensorflow.Workload
) -> None:
    for number, (network, draw) in enumerate(zip(NETWORKS, (initial.generator, initial.critic), strict=True)):
        of_mxnet = in_mxnet.model[number]._collect_params_with_prefix()
        of_keras = {variable.path: variable for variable in in_tensorflow.model[number].trainable_variables}
        for name, values in draw(SMALL.seed, WIDTH):
            path = f"{network}/{name.removesuffix('.weight').replace('.', '/')}/kernel"
            expected = on_tensorflow.from_torch(f"{network}.{name}", values)
            assert in_torch.model[number].get_parameter(name).detach().numpy().tobytes() == values.tobytes()
            assert of_mxnet[name].data().asnumpy().tobytes() == values.tobytes()
            assert of_keras[path].numpy().tobytes() == np.ascontiguousarray(expected).tobytes()


def test_every_framework_trains_on_the_same_bits(
    in_torch: on_torch.Workload, in_mxnet: on_mxnet.Workload, in_tensorflow: on_tensorflow.Workload
) -> None:
    (of_torch,), (of_mxnet,), (of_tensorflow,) = in_torch.inputs, in_mxnet.inputs, in_tensorflow.inputs

    assert of_torch.numpy().tobytes() == of_mxnet.asnumpy().tobytes() == synthetic(2, 0).images.tobytes()
    assert np.ascontiguousarray(of_tensorflow.numpy().transpose(0, 3, 1, 2)).tobytes() == of_torch.numpy().tobytes()


def test_synthetic_pictures_fill_the_range_and_are_the_seeds_alone() -> None:
    images = synthetic(4, 3).images

    assert images.shape == (4, 3, 64, 64)
    assert -1 <= images.min() < -0.99
    assert 0.99 < images.max() <= 1
    assert synthetic(4, 3).images.tobytes() == images.tobytes() != synthetic(4, 4).images.tobytes()


def test_the_draws_are_uniform_of_the_stated_variance_and_the_seeds_alone() -> None:
    draws = dict(initial.critic(0))
    inner, shortcut = draws["block4.conv1.weight"], draws["block4.shortcut.weight"]

    assert inner.std() == pytest.approx((4 / (1024 * 9)) ** 0.5, rel=2e-3)
    assert shortcut.std() == pytest.approx((2 / 1024) ** 0.5, rel=5e-3)
    assert abs(inner).max() == pytest.approx(3**0.5 * (4 / (1024 * 9)) ** 0.5, rel=1e-3)
    assert list(draws) == [f"{layer.name}.weight" for layer in weighted(architecture.critic())]
    assert next(initial.critic(0))[1].tobytes() == draws["conv.weight"].tobytes()
    assert next(initial.critic(1))[1].tobytes() != draws["conv.weight"].tobytes()


def test_the_learning_rate_is_the_papers_at_its_width(
    in_torch: on_torch.Workload, in_mxnet: on_mxnet.Workload, in_tensorflow: on_tensorflow.Workload
) -> None:
    assert learning_rate(64) == 1e-4
    for number in (0, 1):
        assert in_torch.optimizer[number].param_groups[0]["lr"] == in_mxnet.optimizer[number].learning_rate == 16e-4
        assert float(in_tensorflow.optimizer[number].learning_rate) == pytest.approx(16e-4)


@pytest.mark.parametrize("framework", suite.frameworks("wgan"))
def test_a_step_consumes_a_batch_for_each_step_of_the_critic(framework: str, request: pytest.FixtureRequest) -> None:
    workload = request.getfixturevalue(f"in_{framework}")
    noise = np.ones((3, NOISE), np.float32) * np.arange(3, dtype=np.float32)[:, None]
    before = workload.predict(noise), workload.predict(synthetic(3, 1))

    assert workload.step() == 2 * 2
    after = workload.predict(noise), workload.predict(synthetic(3, 1))
    assert before[0].shape == (3, 3, 64, 64)
    assert before[1].shape == (3,)
    assert all(abs(one - other).max() > 1e-5 for one, other in zip(before, after, strict=True))
    assert abs(after[0]).max() <= 1


def test_a_runs_noise_is_its_seeds_alone() -> None:
    first, again, other = (
        on_torch.build(SPEC, suite.configure(SPEC, batch_size=2, seed=seed, options=SMALL.options))
        for seed in (0, 0, 1)
    )
    assert torch.equal(first.noise(), again.noise())
    assert torch.equal(first.coefficients(), again.coefficients())
    assert not torch.equal(first.noise(), other.noise())


def test_training_takes_a_batch_size_of_pictures_for_each_step_of_the_critic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[torch.Tensor] = []
    right = on_torch.Workload.critic_loss

    def noted(self: on_torch.Workload, real: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        seen.append(real)
        return right(self, real, *others)

    monkeypatch.setattr(on_torch.Workload, "critic_loss", noted)
    pictures = synthetic(6, 5)

    assert np.isfinite(on_torch.build(SPEC, SMALL).train(pictures))
    assert torch.cat(seen).numpy().tobytes() == pictures.images.tobytes()
    assert len(seen) == 3


def test_bf16_computes_in_bf16_and_keeps_fp32_weights() -> None:
    workload = on_torch.build(SPEC, suite.configure(SPEC, batch_size=2, precision="bf16", options=SMALL.options))
    dtypes: set[torch.dtype] = set()
    workload.model[1].block2.conv1.register_forward_hook(lambda _module, _inputs, output: dtypes.add(output.dtype))
    workload.step()

    assert dtypes == {torch.bfloat16}
    assert {each.dtype for network in workload.model for each in network.parameters()} == {torch.float32}


def test_mxnet_refuses_bf16_in_one_line() -> None:
    with pytest.raises(UsageError) as caught:
        on_mxnet.build(SPEC, suite.configure(SPEC, precision="bf16"))
    assert str(caught.value) == "wgan in MXNet runs in fp32 or fp64: bf16 needs --framework torch"
