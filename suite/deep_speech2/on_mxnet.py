"""Deep Speech 2 in MXNet's Gluon."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import mxnet as mx
from mxnet import autograd, gluon, nd
from numpy.typing import NDArray

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.data.inputs import feed
from tbdprof.suite.data.speech import Utterances
from tbdprof.suite.deep_speech2 import LARGEST_NORM, LEARNING_RATE, MOMENTUM, initial
from tbdprof.suite.deep_speech2.architecture import width_of
from tbdprof.suite.deep_speech2.on_mxnet_network import DeepSpeech2, Packing
from tbdprof.suite.deep_speech2.packing import consumed, packing
from tbdprof.suite.deep_speech2.utterances import batches
from tbdprof.suite.on_mxnet import check_precision, context_of, dtype_of, hybridize
from tbdprof.suite.workload import PERIOD, Config, Spec


class Example(NamedTuple):
    """A batch of utterances as MXNet's arrays."""

    spectrograms: mx.nd.NDArray
    packing: Packing
    transcripts: mx.nd.NDArray
    transcript_lengths: mx.nd.NDArray
    consumed: Consumed


@dataclass(frozen=True, slots=True)
class Workload:
    """Deep Speech 2 and the utterances it is trained on."""

    spec: Spec
    config: Config
    model: DeepSpeech2
    optimizer: gluon.Trainer
    inputs: tuple[mx.nd.NDArray, ...]  # filled if batches are reused, empty otherwise
    batches: Iterator[Example]

    def step(self) -> Consumed:
        """Train on the next batch once, without waiting for it; return what it consumed."""
        example = next(self.batches)
        self.update(example)
        return example.consumed

    def train(self, batch: Utterances) -> float:
        """Train on a batch once; return its loss."""
        return float(self.update(on_device(batch, self.config)).asscalar())

    def predict(self, inputs: Utterances) -> NDArray[Any]:
        """Return the scores of symbols, (times, batch, 29)."""
        example = on_device(inputs, self.config)
        scores: NDArray[Any] = self.model(example.spectrograms, example.packing).asnumpy()
        return scores

    def update(self, example: Example) -> mx.nd.NDArray:
        """Train on a batch once; return its loss before the update."""
        with autograd.record():
            loss = self.loss(example)
        loss.backward()
        clip([parameter.grad() for parameter in trained(self.model)])
        self.optimizer.step(1)  # the loss is a mean already
        return loss

    def loss(self, example: Example) -> mx.nd.NDArray:
        """Return the mean of the utterances' losses."""
        return ctc_loss(self.model(example.spectrograms, example.packing), example)


def clip(gradients: list[mx.nd.NDArray]) -> None:
    """Scale gradients down to the largest norm allowed; Gluon's own function fails in float64."""
    norm = nd.add_n(*(nd.square(gradient).sum() for gradient in gradients)).sqrt()
    scale = nd.minimum(LARGEST_NORM / norm, 1)
    for gradient in gradients:
        gradient *= scale


def ctc_loss(scores: mx.nd.NDArray, example: Example) -> mx.nd.NDArray:
    """Return the mean of the utterances' CTC losses from scores (times, batch, 29); the operator has only float32."""
    lengths = (example.packing.lengths, example.transcript_lengths)
    given = (each.astype("float32") for each in (scores, example.transcripts, *lengths))
    losses = nd.ctc_loss(*given, use_data_lengths=True, use_label_lengths=True, blank_label="first")
    return losses.mean()


def build(spec: Spec, config: Config) -> Workload:
    """Return Deep Speech 2 with its initial weights, its optimizer and its batches on the device."""
    check_precision(spec, config)
    model = DeepSpeech2(width_of(config.options), str(config.options["cell"]), str(config.options["rnn"]))
    model.cast(dtype_of(config))
    model.initialize(mx.init.Zero(), ctx=context_of(config))
    initialize(model, config)
    hybridize(model, config)
    settings = {"learning_rate": LEARNING_RATE, "momentum": MOMENTUM}
    trainer = gluon.Trainer(model.collect_params(), "sgd", settings)
    kept = PERIOD if config.data is None else 0
    fed = feed(batches(config), partial(on_device, config=config), kept=kept)
    inputs = tuple(array for _ in range(kept) for array in arrays(next(fed)))
    return Workload(spec, config, model, trainer, inputs, fed)


def trained(model: DeepSpeech2) -> list[gluon.Parameter]:
    """Return the trained parameters: neither a plain cell's second bias nor running statistics."""
    return [parameter for parameter in model.collect_params().values() if parameter.grad_req != "null"]


def on_device(batch: Utterances, config: Config) -> Example:
    """Return a batch as MXNet's arrays; integers are also in the model's data type."""
    packed = packing(batch.frames)
    as_array = partial(nd.array, ctx=context_of(config), dtype=dtype_of(config))
    return Example(
        as_array(batch.spectrograms),
        Packing(as_array(packed.lengths), as_array(packed.places), as_array(packed.packed)),
        as_array(batch.transcripts),
        as_array(batch.lengths),
        consumed(batch),
    )


def arrays(example: Example) -> Iterator[mx.nd.NDArray]:
    """Yield the arrays of a batch."""
    yield from (example.spectrograms, *example.packing, example.transcripts, example.transcript_lengths)


def initialize(model: DeepSpeech2, config: Config) -> None:
    """Set the weights drawn from the seed; all other parameters already have their initial values."""
    parameters = model._collect_params_with_prefix()  # noqa: SLF001 - the only way to structural names
    for name, values in initial.weights(config.seed, width_of(config.options), str(config.options["cell"])):
        parameters[parameter_name(name, parameters)].set_data(nd.array(values))


def parameter_name(name: str, parameters: dict[str, gluon.Parameter]) -> str:
    """Return the framework's name for a weight of `initial`, or for the bias beside it (`….inputs_bias`)."""
    layer, _, part = name.rpartition(".")
    if layer.startswith("conv"):
        return f"{layer}.conv.{part}"
    if not layer.startswith("recurrent"):
        return name
    number, _, direction = layer.removeprefix("recurrent").partition(".")
    kind = {"inputs": "i2h_weight", "state": "h2h_weight", "inputs_bias": "i2h_bias", "state_bias": "h2h_bias"}[part]
    place = f"recurrent.{int(number) - 1}.{direction}"
    fused = f"{place}._unfused.0.{kind}"
    return fused if fused in parameters else f"{place}.{kind}"
