"""Deep Speech 2 in PyTorch."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.data.inputs import feed
from tbdprof.suite.data.speech import BLANK, Utterances
from tbdprof.suite.deep_speech2 import LARGEST_NORM, LEARNING_RATE, MOMENTUM, initial
from tbdprof.suite.deep_speech2.architecture import width_of
from tbdprof.suite.deep_speech2.on_torch_network import DeepSpeech2, Packing
from tbdprof.suite.deep_speech2.packing import consumed, packing
from tbdprof.suite.deep_speech2.utterances import batches
from tbdprof.suite.on_torch import autocast, device_of, dtype_of, optimizer_settings
from tbdprof.suite.workload import PERIOD, Config, Options, Spec


class Example(NamedTuple):
    """A batch of utterances as tensors."""

    spectrograms: Tensor
    packing: Packing
    transcripts: Tensor
    transcript_lengths: Tensor
    consumed: Consumed


@dataclass(frozen=True, slots=True)
class Workload:
    """Deep Speech 2 and the utterances it is trained on."""

    spec: Spec
    config: Config
    model: DeepSpeech2
    optimizer: torch.optim.SGD
    inputs: tuple[Tensor, ...]  # filled if batches are reused, empty otherwise
    batches: Iterator[Example]

    def step(self) -> Consumed:
        """Train on the next batch once; return what it consumed."""
        example = next(self.batches)
        self.update(example)
        return example.consumed

    def train(self, batch: Utterances) -> float:
        """Train on a batch once; return its loss."""
        return self.update(on_device(batch, self.config)).item()

    @torch.no_grad()
    def predict(self, inputs: Utterances) -> NDArray[Any]:
        """Return the scores of symbols, (times, batch, 29)."""
        example = on_device(inputs, self.config)
        self.model.eval()
        with autocast(self.config):
            scores = self.model(example.spectrograms, example.packing)
        self.model.train()
        answer: NDArray[Any] = scores.to(dtype_of(self.config)).cpu().numpy()
        return answer

    def update(self, example: Example) -> Tensor:
        """Train on a batch once; return its loss before the update."""
        self.optimizer.zero_grad()
        loss = self.loss(example)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(trained(self.model), LARGEST_NORM)
        self.optimizer.step()
        return loss.detach()

    def loss(self, example: Example) -> Tensor:
        """Return the mean of the utterances' losses."""
        with autocast(self.config):
            scores = self.model(example.spectrograms, example.packing)
        return ctc_loss(scores, example)


def ctc_loss(scores: Tensor, example: Example) -> Tensor:
    """Return the mean of the utterances' CTC losses from scores (times, batch, 29)."""
    wide = scores.float() if scores.dtype == torch.bfloat16 else scores
    logarithms = functional.log_softmax(wide, 2)
    given = (example.transcripts, example.packing.lengths, example.transcript_lengths)
    loss: Tensor = functional.ctc_loss(logarithms, *given, BLANK, reduction="sum")
    return loss / len(example.transcripts)


def build(spec: Spec, config: Config) -> Workload:
    """Return Deep Speech 2 with its initial weights, its optimizer and its batches on the device."""
    cell = str(config.options["cell"])
    model = DeepSpeech2(width_of(config.options), cell, str(config.options["rnn"]))
    initialize(model, config)
    model.to(device_of(config), dtype_of(config))
    optimizer = torch.optim.SGD(trained(model), LEARNING_RATE, MOMENTUM, **optimizer_settings(config))
    kept = PERIOD if config.data is None else 0
    fed = feed(batches(config), partial(on_device, config=config), kept=kept)
    inputs = tuple(tensor for _ in range(kept) for tensor in tensors(next(fed)))
    return Workload(spec, config, model, optimizer, inputs, fed)


def trained(model: DeepSpeech2) -> list[nn.Parameter]:
    """Return the trained parameters: all except a plain cell's second bias."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def on_device(batch: Utterances, config: Config) -> Example:
    """Return a batch as tensors, copied into torch's own memory."""
    device = device_of(config)
    packed = packing(batch.frames)
    return Example(
        torch.tensor(batch.spectrograms, dtype=dtype_of(config), device=device),
        Packing(
            torch.tensor(packed.lengths, device=device),
            torch.tensor(packed.running),
            torch.tensor(packed.places, device=device),
        ),
        torch.tensor(batch.transcripts, device=device),
        torch.tensor(batch.lengths, device=device),
        consumed(batch),
    )


def tensors(example: Example) -> Iterator[Tensor]:
    """Yield the tensors of a batch."""
    yield from (example.spectrograms, *example.packing, example.transcripts, example.transcript_lengths)


@torch.no_grad()
def initialize(model: DeepSpeech2, config: Config) -> None:
    """Set the weights drawn from the seed, and biases to 0; a plain cell's second bias is not trained."""
    cell = str(config.options["cell"])
    for name, values in initial.weights(config.seed, width_of(config.options), cell):
        model.get_parameter(parameter_name(name, config.options)).copy_(torch.from_numpy(values))
    for name, parameter in model.named_parameters():
        if "bias" in name and "norm" not in name:
            nn.init.zeros_(parameter)
        if cell == "rnn" and "bias_hh" in name:
            parameter.requires_grad_(False)


def parameter_name(name: str, options: Options) -> str:
    """Return the framework's name for a weight of `initial`, or for the bias beside it (`….inputs_bias`)."""
    layer, _, part = name.rpartition(".")
    if layer.startswith("conv"):
        return f"{layer}.conv.{part}"
    if not layer.startswith("recurrent"):
        return name
    number, _, direction = layer.removeprefix("recurrent").partition(".")
    kind = {"inputs": "weight_ih", "state": "weight_hh", "inputs_bias": "bias_ih", "state_bias": "bias_hh"}[part]
    if options["rnn"] == "cell":
        return f"recurrent.{int(number) - 1}.{direction}.{kind}"
    return f"recurrent.{int(number) - 1}.cells.{kind}_l0{'_reverse' * (direction == 'back')}"
