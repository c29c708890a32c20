"""The Transformer in PyTorch; its network is in `on_torch_network`."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.data.inputs import SentencePairs, feed
from tbdprof.suite.data.text.translation import consumed
from tbdprof.suite.initial import Weights
from tbdprof.suite.on_torch import device_of, dtype_of, optimizer_settings, switch
from tbdprof.suite.transformer import ADAM_EPSILON, BETAS, SMOOTHING, dropout, initial, learning_rate
from tbdprof.suite.transformer.architecture import sizes_of
from tbdprof.suite.transformer.on_torch_network import DecoderBlock, EncoderBlock, Transformer
from tbdprof.suite.transformer.sentences import batches, filled, given, greedily
from tbdprof.suite.workload import PERIOD, Config, Spec

_IGNORED = -100  # as the cross entropy has it: no answer is asked for


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch on the device."""

    source: Tensor  # (batch, source)
    mask: Tensor  # (batch, 1, 1, source): true where a source has a word
    given: Tensor  # (batch, target): what the decoder is given
    target: Tensor  # (batch, target): what it is to answer
    consumed: Consumed


@dataclass(frozen=True, slots=True)
class Workload:
    """The Transformer and the sentences it is trained on."""

    spec: Spec
    config: Config
    model: Transformer
    optimizer: torch.optim.Adam
    schedule: torch.optim.lr_scheduler.LambdaLR
    inputs: tuple[Tensor, ...]  # those of the synthetic batches
    batches: Iterator[Batch]

    def step(self) -> Consumed:
        """Train on the next batch once; return what it consumed."""
        batch = next(self.batches)
        self.train_step(batch)
        return batch.consumed

    def train_step(self, batch: Batch) -> Tensor:
        """Train on a batch once; return its loss before the update."""
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.schedule.step()
        return loss

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean cross entropy of the target words, with label smoothing."""
        with torch.autocast(batch.source.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            scores = self.model(batch.source, batch.mask, batch.given)
            return nn.functional.cross_entropy(
                scores.flatten(0, 1), batch.target.flatten(), ignore_index=_IGNORED, label_smoothing=SMOOTHING
            )

    def train(self, batch: SentencePairs) -> float:
        """Train on a batch once; return its loss before the update."""
        return self.train_step(on_device(batch, self.config)).item()

    @torch.no_grad()
    def predict(self, inputs: SentencePairs) -> NDArray[Any]:
        """Return the log-probability of each target word, (batch, target), given the true words before it."""
        target = words(inputs.target, self.config)[:, :, None]
        answer: NDArray[Any] = self.scores(inputs).log_softmax(2).gather(2, target).squeeze(2).cpu().numpy()
        return answer

    @torch.no_grad()
    def translate(self, source: NDArray[Any], source_lengths: NDArray[Any], longest: int) -> NDArray[Any]:
        """Return greedy translations of up to `longest` words, (batch, words)."""

        def likeliest(pairs: SentencePairs) -> NDArray[Any]:
            chosen: NDArray[Any] = self.scores(pairs).argmax(2).cpu().numpy()
            return chosen

        return greedily(likeliest, source, source_lengths, longest)

    def scores(self, inputs: SentencePairs) -> Tensor:
        """Return the scores of each next word, without dropout."""
        batch = on_device(inputs, self.config)
        self.model.eval()
        scores: Tensor = self.model(batch.source, batch.mask, batch.given)
        self.model.train()
        return scores


def build(spec: Spec, config: Config) -> Workload:
    """Return the Transformer with its initial weights, its optimizer and its batches on the device."""
    sizes, share = sizes_of(config.options), dropout(config.options)
    model = Transformer(sizes, share)
    initialize(model, initial.weights(config.seed, sizes))
    model.to(device_of(config), dtype_of(config))
    switch(model, config, (EncoderBlock, DecoderBlock))
    optimizer = torch.optim.Adam(model.parameters(), 1.0, BETAS, ADAM_EPSILON, **optimizer_settings(config))
    warmup = int(config.options["rise"])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda steps: learning_rate(steps + 1, sizes.width, warmup))
    synthetic = config.data is None
    own = feed(batches(config), partial(on_device, config=config), kept=PERIOD * synthetic)
    kept = [next(own) for _ in range(PERIOD * synthetic)]  # once around
    inputs = tuple(tensor for each in kept for tensor in (each.source, each.mask, each.given, each.target))
    return Workload(spec, config, model, optimizer, schedule, inputs, own)


@torch.no_grad()
def initialize(model: Transformer, weights: Weights) -> None:
    """Set the drawn weights on a new model, and all biases to 0."""
    for name, values in weights:
        model.get_parameter(name).copy_(torch.from_numpy(values))
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


def on_device(batch: SentencePairs, config: Config) -> Batch:
    """Return a batch as tensors on the device."""
    mask = torch.tensor(filled(batch.source_lengths, batch.source.shape[1]), device=device_of(config))
    asked = np.where(filled(batch.target_lengths, batch.target.shape[1]), batch.target, _IGNORED)
    return Batch(
        words(batch.source, config),
        mask[:, None, None],
        words(given(batch.target), config),
        words(asked, config),
        consumed(batch, "tokens"),
    )


def words(numbers: NDArray[Any], config: Config) -> Tensor:
    """Return word numbers as a tensor, copied into torch's own memory."""
    return torch.tensor(numbers, dtype=torch.int64, device=device_of(config))
