"""Seq2Seq in PyTorch."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.data.inputs import START, SentencePairs, feed
from tbdprof.suite.data.text.buckets import Sentences
from tbdprof.suite.data.text.corpora import IWSLT15
from tbdprof.suite.data.text.translation import batches, consumed
from tbdprof.suite.on_torch import at_least_float32, autocast, device_of, dtype_of, optimizer_settings
from tbdprof.suite.seq2seq import DROPOUT, LARGEST_NORM, initial, learning_rate
from tbdprof.suite.seq2seq.on_torch_network import Seq2Seq, parts
from tbdprof.suite.workload import PERIOD, Config, Spec

PADDING = -100  # what cross entropy leaves out


class Batch(NamedTuple):
    """Sentences as tensors, time first."""

    source: Tensor  # (source, batch)
    lengths: Tensor  # (batch,) of the source, on the CPU, where torch wants those of packed sequences
    words: Tensor  # (target, batch) that the decoder is given
    answers: Tensor  # (target, batch) that it is to give, `PADDING` after a sentence's end
    consumed: Consumed


@dataclass(frozen=True, slots=True)
class Workload:
    """Seq2Seq and the sentences it is trained on."""

    spec: Spec
    config: Config
    model: Seq2Seq
    optimizer: torch.optim.SGD
    inputs: tuple[Tensor, ...]  # those of the synthetic batches, which are reused
    batches: Iterator[Batch]

    def step(self) -> Consumed:
        """Train on the next batch once; return what it consumed."""
        batch = next(self.batches)
        self.update(batch)
        return batch.consumed

    def train(self, batch: SentencePairs) -> float:
        """Train on a batch once; return its mean loss per target token."""
        loss = self.update(on_device(batch, self.config)).item()
        return loss * len(batch.source) / float(batch.target_lengths.sum())

    def predict(self, inputs: SentencePairs) -> NDArray[np.floating[Any]]:
        """Return the log-probability of each target token, (batch, target), given the true tokens before it."""
        batch = on_device(inputs, self.config)
        self.model.eval()
        with torch.no_grad(), autocast(self.config):
            log_probabilities = functional.log_softmax(self.model(batch.source, batch.lengths, batch.words), 2)
        self.model.train()
        answers = batch.answers.clamp(min=0).unsqueeze(2)
        return at_least_float32(log_probabilities.gather(2, answers).squeeze(2).T).cpu().numpy()

    def translate(
        self, source: NDArray[np.int32], source_lengths: NDArray[np.int32], longest: int
    ) -> NDArray[np.int32]:
        """Return greedy translations, (batch, at most `longest`); ignore what follows the first `END` of a row."""
        self.model.eval()
        with torch.no_grad(), autocast(self.config):
            words = self.model.translate(numbers(source, self.config), torch.tensor(source_lengths), longest)
        self.model.train()
        return words.cpu().numpy().astype(np.int32)

    def update(self, batch: Batch) -> Tensor:
        """Train on a batch once; return its loss before the update."""
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), LARGEST_NORM)
        self.optimizer.step()
        return loss.detach()

    def loss(self, batch: Batch) -> Tensor:
        """Return the sum of the tokens' cross entropy, divided by the number of sentences."""
        with autocast(self.config):
            logits = self.model(batch.source, batch.lengths, batch.words)
            of_tokens = functional.cross_entropy(
                logits.flatten(0, 1), batch.answers.flatten(), ignore_index=PADDING, reduction="sum"
            )
            return of_tokens / batch.source.shape[1]


def build(spec: Spec, config: Config) -> Workload:
    """Return Seq2Seq with its initial weights, its optimizer and its batches on the device."""
    torch.manual_seed(config.seed)  # dropout draws from torch's own generator
    width, fused = int(config.options["width"]), config.options["rnn"] == "fused"
    model = Seq2Seq(width, fused=fused, dropout=DROPOUT if config.options["dropout"] == "on" else 0.0)
    initialize(model, config.seed, width)
    model.to(device_of(config), dtype_of(config))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=learning_rate(config.batch_size), **optimizer_settings(config))
    drawn = batches(config, IWSLT15, Sentences(config.batch_size), PERIOD)
    kept = 0 if config.data else PERIOD
    fed = feed(drawn, partial(on_device, config=config), kept=kept)
    inputs = tuple(tensor for _ in range(kept) for tensor in next(fed)[:-1])
    return Workload(spec, config, model, optimizer, inputs, fed)


def on_device(batch: SentencePairs, config: Config) -> Batch:
    """Return a batch as tensors, copied into torch's own memory."""
    target = numbers(batch.target, config)
    words = torch.cat([torch.full_like(target[:1], START), target[:-1]])
    lengths = torch.tensor(batch.target_lengths, device=target.device)
    steps = torch.arange(len(target), device=target.device)
    answers = target.masked_fill(steps[:, None] >= lengths, PADDING)
    source = numbers(batch.source, config)
    return Batch(source, torch.tensor(batch.source_lengths), words, answers, consumed(batch, "sentences"))


def numbers(words: NDArray[np.int32], config: Config) -> Tensor:
    """Return word numbers, given as (batch, time), as a tensor with time first."""
    return torch.tensor(words.T, dtype=torch.int64, device=device_of(config))


@torch.no_grad()
def initialize(model: Seq2Seq, seed: int, width: int) -> None:
    """Set the weights drawn from a seed on a new model; the attention's scale is already 1."""
    found = parts(model)
    for name, values in initial.weights(seed, width):
        for part, drawn in zip(found[name], torch.from_numpy(values).chunk(len(found[name])), strict=True):
            part.copy_(drawn)
