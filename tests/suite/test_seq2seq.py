"""Seq2Seq is what it is said to be: figures are sums over layers, in every framework."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from seq2seq_trained import BATCH, SOURCES, TARGETS

from tbdprof import suite
from tbdprof.errors import UsageError
from tbdprof.facts.consumed import Consumed
from tbdprof.suite.checks import translation
from tbdprof.suite.data.inputs import END, START, SentencePairs
from tbdprof.suite.data.text.buckets import Sentences
from tbdprof.suite.data.text.corpora import IWSLT15
from tbdprof.suite.data.text.translation import synthetic
from tbdprof.suite.seq2seq import (
    SECOND_BIASES,
    SPEC,
    architecture,
    initial,
    learning,
    learning_rate,
    on_mxnet,
    on_mxnet_network,
    on_tensorflow,
    on_tensorflow_network,
    on_torch,
    on_torch_network,
)
from tbdprof.suite.workload import PERIOD

WIDTH = 8
KINDS = ("fused", "cell")
Workload = on_torch.Workload | on_mxnet.Workload | on_tensorflow.Workload
BUILD = {"torch": on_torch.build, "mxnet": on_mxnet.build, "tensorflow": on_tensorflow.build}
CELLS = [(framework, rnn) for framework in BUILD for rnn in KINDS]
built: dict[tuple[str, str], Workload] = {}


def config(rnn: str, **asked: object) -> suite.Config:
    return suite.configure(SPEC, batch_size=2, seed=5, options={"width": WIDTH, "rnn": rnn} | asked)  # type: ignore[dict-item]


def workload(framework: str, rnn: str) -> Workload:
    """Return a model that no test trains."""
    if (framework, rnn) not in built:
        built[framework, rnn] = BUILD[framework](SPEC, config(rnn))
    return built[framework, rnn]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    built.clear()


def trained_values(of: Workload) -> int:
    """Return how many values are trained."""
    if isinstance(of, on_torch.Workload):
        return sum(each.numel() for each in of.model.parameters() if each.requires_grad)
    if isinstance(of, on_mxnet.Workload):
        return sum(each.data().size for each in of.model.collect_params().values() if each.grad_req != "null")
    return sum(int(np.prod(each.shape)) for each in of.model.trainable_variables)


def begun(of: Workload) -> dict[str, list[np.ndarray]]:
    """Return the weights a model has, by their names in `initial`."""
    if isinstance(of, on_torch.Workload):
        found = on_torch_network.parts(of.model)
        return {name: [part.detach().numpy() for part in each] for name, each in found.items()}
    if isinstance(of, on_mxnet.Workload):
        return {
            name: [part.data().asnumpy() for part in each] for name, each in on_mxnet_network.parts(of.model).items()
        }
    return {
        name: [np.ascontiguousarray(on_tensorflow_network.from_torch(name, part.numpy())) for part in each]
        for name, each in on_tensorflow_network.parts(of.model).items()
    }


def test_the_parameters_are_the_sum_over_the_layers() -> None:
    """By hand, as the suite's list of models has them."""
    of_layers = {layer.name: architecture.of_layer(layer) for layer in architecture.layers()}

    assert of_layers["encoder.embedding"] + of_layers["decoder.embedding"] == (17_191 + 7_709) * 512 == 12_748_800
    assert of_layers["encoder.forward"] + of_layers["encoder.backward"] == 2 * 4 * 512 * (512 + 512 + 1) == 4_198_400
    assert of_layers["decoder.first"] == 4 * 512 * (1_024 + 512 + 1)
    assert of_layers["decoder.first"] + of_layers["decoder.second"] == 5_246_976
    assert of_layers["decoder.memory"] + of_layers["decoder.attention"] + 1 == 1_310_721
    assert of_layers["decoder.projection"] == 3_947_008
    assert SPEC.parameters == architecture.parameters() == 27_451_905
    assert SPEC.fixed_bytes == 2 * 4 * 27_451_905


def test_the_vocabularies_are_the_corpus_s() -> None:
    assert (IWSLT15.source_words, IWSLT15.target_words) == (architecture.SOURCE_WORDS, architecture.TARGET_WORDS)


@pytest.mark.parametrize(("framework", "rnn"), CELLS)
def test_the_parameters_in_every_framework(framework: str, rnn: str) -> None:
    assert trained_values(workload(framework, rnn)) == architecture.parameters(WIDTH)


def test_the_second_biases_are_extras_that_stay_zero() -> None:
    of_torch, of_mxnet = workload("torch", "fused"), workload("mxnet", "fused")
    assert isinstance(of_torch, on_torch.Workload)
    assert isinstance(of_mxnet, on_mxnet.Workload)
    extra = [each for each in of_torch.model.parameters() if not each.requires_grad]
    parameters = of_mxnet.model.collect_params()
    own = {name: each.data().asnumpy() for name, each in parameters.items() if each.grad_req == "null"}
    biases = [values for name, values in own.items() if name.endswith("bias")]

    assert SECOND_BIASES == {"torch": 8_192, "mxnet": 8_192, "tensorflow": 0}
    assert sum(each.numel() for each in extra) == sum(values.size for values in biases) == 4 * 4 * WIDTH
    assert not any(bool(each.any()) for each in extra)
    assert not any(values.any() for values in biases)
    assert [name for name in own if not name.endswith("bias")] == ["seq2seq_encoder_layer_at_padding"]
    assert not [each for each in workload("torch", "cell").model.parameters() if not each.requires_grad]


@pytest.mark.parametrize(("framework", "rnn"), CELLS)
def test_every_framework_begins_with_the_same_bits(framework: str, rnn: str) -> None:
    found = begun(workload(framework, rnn))
    drawn = dict(initial.weights(5, WIDTH))

    assert set(found) == set(drawn)
    for name, values in drawn.items():
        assert np.concatenate(found[name]).tobytes() == values.tobytes(), name


def test_the_draws_are_uniform_within_a_tenth_and_the_forget_gates_begin_open() -> None:
    drawn = dict(initial.weights(0, WIDTH))
    words, bias = drawn["encoder.embedding.weight"], drawn["decoder.first.bias"].reshape(4, WIDTH)

    assert words.shape == (17_191, WIDTH)
    assert abs(words).max() == pytest.approx(0.1, rel=1e-4)
    assert words.std() == pytest.approx(0.1 / 3**0.5, rel=1e-2)
    assert bias.tolist() == [[0] * WIDTH, [1] * WIDTH, [0] * WIDTH, [0] * WIDTH]
    assert next(initial.weights(1, WIDTH))[1].tobytes() != words.tobytes()


def test_synthetic_batches_are_kept_for_a_period() -> None:
    kept = {framework: workload(framework, "fused").inputs for framework in BUILD}
    first = synthetic(IWSLT15, Sentences(2), 5, PERIOD)[0]

    assert {framework: len(arrays) // PERIOD for framework, arrays in kept.items()} == {
        "torch": 4,
        "mxnet": 5,
        "tensorflow": 5,
    }
    assert kept["torch"][0].numpy().T.tolist() == first.source.tolist()
    assert kept["mxnet"][0].asnumpy().T.tolist() == first.source.tolist()
    assert kept["tensorflow"][0].numpy().tolist() == first.source.tolist()


def test_a_decoder_is_given_the_start_and_all_but_the_last_word() -> None:
    batch = on_torch.on_device(BATCH, config("fused"))

    assert batch.words[:, 0].tolist() == [START, 12, 9, END, END, END]
    assert batch.answers[:, 0].tolist() == [12, 9, END, *3 * [on_torch.PADDING]]


@pytest.mark.parametrize("framework", BUILD)
def test_a_step_consumes_sentences_and_tokens_and_no_padding(framework: str) -> None:
    of = BUILD[framework](SPEC, config("fused"))
    first = synthetic(IWSLT15, Sentences(2), 5, PERIOD)[0]
    tokens = int(first.source_lengths.sum() + first.target_lengths.sum())

    assert of.step() == Consumed(
        2,
        {"tokens": tokens},
        {"tokens": first.source.size + first.target.size - tokens},
        {"source": first.source.shape[1], "target": first.target.shape[1]},
    )


@pytest.mark.parametrize("framework", BUILD)
def test_what_is_predicted_of_a_batch_is_its_loss(framework: str) -> None:
    """The sum over the tokens is what is trained on, over the sentences; `train` returns the mean of the tokens."""
    of = BUILD[framework](SPEC, config("fused", dropout="off"))
    counted = np.arange(BATCH.target.shape[1]) < BATCH.target_lengths[:, None]
    predicted = of.predict(BATCH)[counted]

    assert predicted.shape == (sum(map(len, TARGETS)),)
    assert of.train(BATCH) == pytest.approx(-predicted.mean(), rel=1e-5)


@pytest.mark.parametrize("framework", BUILD)
def test_dropout_is_of_training_alone(framework: str) -> None:
    of = BUILD[framework](SPEC, config("fused"))
    counted = np.arange(BATCH.target.shape[1]) < BATCH.target_lengths[:, None]
    once, again = of.predict(BATCH)[counted], of.predict(BATCH)[counted]

    assert once.tolist() == again.tolist()
    assert of.train(BATCH) != pytest.approx(-once.mean(), rel=1e-9)


@pytest.mark.parametrize(("framework", "rnn"), CELLS)
def test_a_translation_is_the_likeliest_word_after_each(framework: str, rnn: str) -> None:
    """What is predicted of the words that were chosen is as large as of any others at their place."""
    of = workload(framework, rnn)
    found = np.asarray(of.translate(BATCH.source, BATCH.source_lengths, 4))
    lengths = np.full(len(SOURCES), found.shape[1], np.int32)
    chosen = of.predict(replace_target(found.astype(np.int32), lengths))
    generator = np.random.default_rng(0)

    assert found.shape[0] == len(SOURCES)
    assert found.shape[1] <= 4
    for place in range(found.shape[1]):
        others = found.astype(np.int32).copy()
        others[:, place] = generator.integers(architecture.TARGET_WORDS, size=len(others))
        assert (of.predict(replace_target(others, lengths))[:, place] <= chosen[:, place] + 1e-6).all()


def replace_target(target: np.ndarray, lengths: np.ndarray) -> SentencePairs:
    return replace(BATCH, target=target, target_lengths=lengths)


def test_the_learning_rate_is_nmts_at_its_batch() -> None:
    assert learning_rate(128) == 1
    assert learning_rate(8) == 1 / 16
    assert SPEC.default_batch["cuda"] == 128
    of_torch, of_mxnet, of_tensorflow = (workload(framework, "fused").optimizer for framework in BUILD)
    assert of_torch.param_groups[0]["lr"] == of_mxnet.learning_rate == float(of_tensorflow.learning_rate) == 1 / 64


def test_bf16_computes_in_bf16_and_keeps_fp32_weights() -> None:
    options = {"width": WIDTH}
    of = on_torch.build(SPEC, suite.configure(SPEC, batch_size=2, precision="bf16", options=options))
    dtypes: set[torch.dtype] = set()
    of.model.decoder.projection.register_forward_hook(lambda _module, _inputs, output: dtypes.add(output.dtype))
    of.step()

    assert dtypes == {torch.bfloat16}
    assert {each.dtype for each in of.model.parameters()} == {torch.float32}


def test_mxnet_refuses_bf16_in_one_line() -> None:
    with pytest.raises(UsageError) as caught:
        on_mxnet.build(SPEC, suite.configure(SPEC, precision="bf16"))
    assert str(caught.value) == "seq2seq in MXNet runs in fp32 or fp64: bf16 needs --framework torch"


def test_the_check_of_learning_is_at_nmts_learning_rate() -> None:
    assert learning_rate(learning.CHECK.batch_size) == 1
    assert translation.WORDS <= architecture.TARGET_WORDS
