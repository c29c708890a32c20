"""The Transformer is what it is said to be: figures are sums over layers, in every framework."""

from collections.abc import Callable, Iterator
from math import cos, sin, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_sets import parallel_text

from tbdprof import suite
from tbdprof.errors import UsageError
from tbdprof.facts.consumed import Consumed
from tbdprof.suite.checks.learning import Setting
from tbdprof.suite.data.inputs import END, START, SentencePairs
from tbdprof.suite.transformer import (
    SPEC,
    initial,
    learning,
    learning_rate,
    on_mxnet,
    on_tensorflow,
    on_torch,
    on_torch_network,
)
from tbdprof.suite.transformer.architecture import Dense, Embedding, Sizes, layers, parameters, sizes_of
from tbdprof.suite.transformer.sentences import PLACES, batches, filled, given, greedily, later, shapes

SMALL = suite.configure(SPEC, batch_size=2, options={"width": 16, "layers": 2, "vocabulary": 50})
SIZES = sizes_of(SMALL.options)
# One pair of 2 and 3 words, beside one of 1 and 1.
PAIRS = SentencePairs(
    source=np.array([[5, 6], [7, END]], np.int32),
    source_lengths=np.array([2, 1], np.int32),
    target=np.array([[8, 9, 10, END], [11, END, END, END]], np.int32),
    target_lengths=np.array([4, 2], np.int32),
)


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


every_framework = pytest.mark.parametrize("framework", suite.frameworks("transformer"))


def workload_in(framework: str, request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"in_{framework}")


def test_it_is_written_for_each_framework() -> None:
    assert suite.frameworks("transformer") == ("mxnet", "tensorflow", "torch")


def test_the_parameters_are_the_sum_over_the_layers() -> None:
    """By hand: projections with biases, the dense layers, and two or three normalizations of 2 × 512."""
    attention, feed_forward = 4 * (512 * 512 + 512), 512 * 2048 + 2048 + 2048 * 512 + 512
    encoder, decoder = attention + feed_forward + 2 * 1024, 2 * attention + feed_forward + 3 * 1024

    assert parameters(layers()) == SPEC.parameters == 37_000 * 512 + 6 * (encoder + decoder) == 63_082_496
    assert SPEC.fixed_bytes == 4 * 4 * SPEC.parameters
    biases = sum(layer.outputs for layer in layers() if isinstance(layer, Dense) and layer.inputs == layer.outputs)
    assert parameters(layers()) - biases == 63_045_632


def test_torch_has_the_papers_parameters() -> None:
    with torch.device("meta"):
        model = on_torch_network.Transformer(Sizes(), 0.1)

    assert sum(each.numel() for each in model.parameters()) == 63_082_496
    assert [name for name, _ in model.named_buffers()] == ["positions"]


def test_every_framework_has_the_parameters_of_the_layers(
    in_torch: on_torch.Workload, in_mxnet: on_mxnet.Workload, in_tensorflow: on_tensorflow.Workload
) -> None:
    expected = parameters(layers(SIZES))
    of_mxnet = in_mxnet.model.collect_params().values()

    assert sum(each.numel() for each in in_torch.model.parameters()) == expected
    assert sum(each.data().size for each in of_mxnet if each.grad_req != "null") == expected
    assert sum(int(np.prod(each.shape)) for each in in_tensorflow.model.trainable_variables) == expected
    assert [each.shape for each in of_mxnet if each.grad_req == "null"] == [(1, PLACES, 16)]


def test_every_framework_begins_with_the_same_bits(
    in_torch: on_torch.Workload, in_mxnet: on_mxnet.Workload, in_tensorflow: on_tensorflow.Workload
) -> None:
    of_mxnet = in_mxnet.model._collect_params_with_prefix()
    of_keras = {variable.path: variable for variable in in_tensorflow.model.trainable_variables}
    drawn = dict(initial.weights(SMALL.seed, SIZES))

    assert list(drawn) == [f"{each.name}.weight" for each in layers(SIZES) if isinstance(each, Dense | Embedding)]
    for name, values in drawn.items():
        path = on_tensorflow.keras_path(name)
        expected = values if path.endswith("/embeddings") else np.ascontiguousarray(values.T)
        assert in_torch.model.get_parameter(name).detach().numpy().tobytes() == values.tobytes()
        assert of_mxnet[name].data().asnumpy().tobytes() == values.tobytes()
        assert of_keras[path].numpy().tobytes() == expected.tobytes()
    positions = in_torch.model.positions.numpy().tobytes()
    assert in_mxnet.model.positions.data().asnumpy().tobytes() == positions
    assert in_tensorflow.model.positions.numpy().tobytes() == positions


def test_every_framework_trains_on_the_same_bits(
    in_torch: on_torch.Workload, in_mxnet: on_mxnet.Workload, in_tensorflow: on_tensorflow.Workload
) -> None:
    for number, pairs in zip(range(SPEC.period), batches(SMALL), strict=False):
        expected = pairs.source, given(pairs.target)
        of_torch = in_torch.inputs[4 * number], in_torch.inputs[4 * number + 2]
        of_mxnet = in_mxnet.inputs[6 * number], in_mxnet.inputs[6 * number + 2]
        of_tensorflow = in_tensorflow.inputs[6 * number], in_tensorflow.inputs[6 * number + 2]
        for place, values in enumerate(expected):
            assert (of_torch[place].numpy() == values).all()
            assert (of_mxnet[place].asnumpy() == values).all()
            assert (of_tensorflow[place].numpy() == values).all()


def test_the_draws_have_the_stated_variance_and_are_the_seeds_alone() -> None:
    draws = dict(initial.weights(0))

    assert draws["embedding.weight"].std() == pytest.approx(512**-0.5, rel=1e-3)
    assert draws["decoder.5.inner.weight"].std() == pytest.approx(sqrt(2 / (512 + 2048)), rel=2e-3)
    assert abs(draws["encoder.0.attention.key.weight"]).max() == pytest.approx(sqrt(6 / 1024), rel=1e-3)
    assert next(initial.weights(0))[1].tobytes() == draws["embedding.weight"].tobytes()
    assert next(initial.weights(1))[1].tobytes() != draws["embedding.weight"].tobytes()


def test_positions_are_sines_and_cosines_of_slower_and_slower_waves() -> None:
    """By hand for a width of 4: the rates are 1 and 1 / 10000^(2/4)."""
    expected = [sin(3), cos(3), sin(0.03), cos(0.03)]

    assert initial.positions(8, 4)[3] == pytest.approx(expected)
    assert initial.positions(8, 4)[0].tolist() == [0, 1, 0, 1]


def test_the_learning_rate_rises_for_4000_steps_and_falls_with_their_root() -> None:
    largest = 1 / sqrt(512 * 4000)

    assert learning_rate(4000, 512, 4000) == pytest.approx(largest)
    assert learning_rate(100, 512, 4000) == pytest.approx(largest / 40)
    assert learning_rate(16_000, 512, 4000) == pytest.approx(largest / 2)


def test_every_framework_has_the_schedules_rate_at_each_step(
    in_torch: on_torch.Workload, in_mxnet: on_mxnet.Workload, in_tensorflow: on_tensorflow.Workload
) -> None:
    for step in (1, 2, 4000, 16_000):
        expected = learning_rate(step, 16, 4000)
        assert in_torch.schedule.lr_lambdas[0](step - 1) == expected
        assert in_mxnet.optimizer.optimizer.lr_scheduler(step) == expected
        assert float(in_tensorflow.optimizer._learning_rate(step - 1)) == pytest.approx(expected, rel=1e-6)


def test_a_decoder_is_given_the_start_and_the_words_before_each() -> None:
    assert given(PAIRS.target).tolist() == [[START, 8, 9, 10], [START, 11, END, END]]
    assert filled(PAIRS.target_lengths, 4).tolist() == [[True] * 4, [True, True, False, False]]
    assert later(3).tolist() == [[False, True, True], [False, False, True], [False, False, False]]


def test_a_batch_has_its_budget_of_places_at_most() -> None:
    default = suite.configure(SPEC)

    for config in (SMALL, default):
        found = shapes(config)
        assert len(found) == SPEC.period
        for shape in found:
            assert shape.sentences == 1 or shape.sentences * max(shape.source, shape.target) <= 32 * config.batch_size
    assert len({shape.source for shape in shapes(default)}) == 4


@every_framework
def test_a_step_consumes_the_tokens_of_both_sides_without_padding(
    framework: str, request: pytest.FixtureRequest
) -> None:
    workload = workload_in(framework, request)
    consumed: list[Consumed] = [workload.step() for _ in range(SPEC.period)]

    for step, pairs in zip(consumed, batches(SMALL), strict=False):
        tokens = int(pairs.source_lengths.sum() + pairs.target_lengths.sum())
        assert step.units == tokens
        assert step.also == {"sentences": len(pairs.source)}
        assert step.padding == {"tokens": pairs.source.size + pairs.target.size - tokens}


@every_framework
def test_padding_changes_nothing(framework: str, request: pytest.FixtureRequest) -> None:
    workload = workload_in(framework, request)
    alone = SentencePairs(
        PAIRS.source[1:, :1], PAIRS.source_lengths[1:], PAIRS.target[1:, :2], PAIRS.target_lengths[1:]
    )

    assert workload.predict(PAIRS)[1, :2] == pytest.approx(workload.predict(alone)[0], abs=1e-5)


@every_framework
def test_what_is_predicted_are_logarithms_of_probabilities(framework: str, request: pytest.FixtureRequest) -> None:
    workload = workload_in(framework, request)
    every = [
        workload.predict(SentencePairs(np.array([[5]]), np.array([1]), np.array([[word]]), np.array([1])))
        for word in range(SIZES.vocabulary)
    ]

    assert float(np.exp(every).sum()) == pytest.approx(1, abs=1e-4)


@every_framework
def test_a_translation_takes_the_likeliest_word_after_each(framework: str, request: pytest.FixtureRequest) -> None:
    workload = workload_in(framework, request)
    made = workload.translate(PAIRS.source, PAIRS.source_lengths, 3)
    of_the_first = [word for word in made[0].tolist() if word != END] or [END]

    def log_probability(word: int) -> float:
        pair = SentencePairs(PAIRS.source[:1], PAIRS.source_lengths[:1], np.array([[word]]), np.array([1]))
        return float(workload.predict(pair)[0, 0])

    assert made.shape == (2, 3)
    assert max(range(SIZES.vocabulary), key=log_probability) == of_the_first[0]


def test_a_translation_ends_where_every_sentence_has() -> None:
    asked: list[list[list[int]]] = []

    def likeliest(pairs: SentencePairs) -> Any:
        asked.append(given(pairs.target).tolist())
        return np.array([[7, END, 9], [END, 8, 9]])

    assert greedily(likeliest, PAIRS.source, PAIRS.source_lengths, 3).tolist() == [[7, END, END], [END, 8, END]]
    assert [each[0] for each in asked] == [[START, END, END], [START, 7, END]]


@every_framework
def test_training_lowers_the_loss_and_returns_it(framework: str, request: pytest.FixtureRequest) -> None:
    module = {"torch": on_torch, "mxnet": on_mxnet, "tensorflow": on_tensorflow}[framework]
    options = SMALL.options | {"rise": 20, "layers": 1}
    workload = module.build(SPEC, suite.configure(SPEC, batch_size=2, options=options))
    losses = [workload.train(PAIRS) for _ in range(30)]

    assert 3 < losses[0] < 7  # the logarithm of 50 words is 3.9
    assert np.mean(losses[-3:]) < losses[0] - 1


def test_dropout_is_in_training_alone_and_can_be_left_out(in_torch: on_torch.Workload) -> None:
    batch = next(in_torch.batches)
    without = on_torch.build(SPEC, suite.configure(SPEC, batch_size=2, options=SMALL.options | {"dropout": "off"}))

    assert in_torch.loss(batch).item() != in_torch.loss(batch).item()
    assert without.loss(batch).item() == without.loss(batch).item()
    assert (in_torch.predict(PAIRS) == in_torch.predict(PAIRS)).all()


def test_a_check_is_passed_by_a_network_that_learns_and_by_no_other() -> None:
    def idle(config: Any) -> on_torch.Workload:
        workload = on_torch.build(SPEC, config)
        for group in workload.optimizer.param_groups:
            group["initial_lr"] = 0.0
        workload.schedule.base_lrs = [0.0]
        workload.optimizer.param_groups[0]["lr"] = 0.0
        return workload

    def judged(build: Callable[[Any], Any], steps: int) -> Any:
        return learning.run(build, Setting(steps=steps), lambda _step, _steps: None)

    alive, dead = judged(lambda config: on_torch.build(SPEC, config), 140), judged(idle, 4)
    assert alive.passed
    assert not dead.passed
    assert dead.last.loss == dead.curve[0].loss == alive.curve[0].loss


def test_bf16_computes_in_bf16_and_keeps_fp32_weights() -> None:
    workload = on_torch.build(SPEC, suite.configure(SPEC, batch_size=2, precision="bf16", options=SMALL.options))
    dtypes: set[torch.dtype] = set()
    workload.model.decoder[0].inner.register_forward_hook(lambda _module, _inputs, output: dtypes.add(output.dtype))
    workload.step()

    assert dtypes == {torch.bfloat16}
    assert {each.dtype for each in workload.model.parameters()} == {torch.float32}


def test_tensorflow_computes_in_bf16_too() -> None:
    options = SMALL.options | {"layers": 1}
    workload = on_tensorflow.build(SPEC, suite.configure(SPEC, batch_size=2, precision="bf16", options=options))

    assert np.isfinite(workload.train(PAIRS))
    assert {each.dtype for each in workload.model.trainable_variables} == {"float32"}


def test_what_cannot_be_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError) as caught:
        on_mxnet.build(SPEC, suite.configure(SPEC, precision="bf16"))
    assert str(caught.value) == "transformer in MXNet runs in fp32 or fp64: bf16 needs --framework torch"
    with pytest.raises(UsageError) as caught:
        on_torch.build(SPEC, suite.configure(SPEC, options={"width": 20}))
    assert str(caught.value) == "--width is 20: give a multiple of 8, one part for each head"


@every_framework
def test_a_data_sets_sentences_are_read_in_subwords(framework: str, tmp_path: Path) -> None:
    module = {"torch": on_torch, "mxnet": on_mxnet, "tensorflow": on_tensorflow}[framework]
    lines = [(f"the {word} dog sees a cat", f"ein {word} hund sieht eine katze") for word in ("old", "new", "red") * 20]
    options = SMALL.options | {"layers": 1, "vocabulary": 80}
    folder = parallel_text(tmp_path / "text", lines, ("en", "de"))
    workload = module.build(SPEC, suite.configure(SPEC, batch_size=2, options=options, data=folder))
    consumed: Consumed = workload.step()

    assert len(workload.inputs) == 0
    assert consumed.lengths["source"] >= 6  # words, each of one subword or more
    assert consumed.units >= (6 + 6 + 1) * consumed.also["sentences"] > 0
