"""Seq2Seq's network in PyTorch. Time is the first axis, the batch the second."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tbdprof.suite.data.inputs import END, START
from tbdprof.suite.seq2seq.architecture import GATES, SOURCE_WORDS, TARGET_WORDS

State = tuple[Tensor, Tensor]  # a cell's output and its memory, each (batch, width)


class Memory(NamedTuple):
    """What the decoder knows about the source."""

    values: Tensor  # (batch, source, 2 × width)
    keys: Tensor  # (batch, source, width)
    padding: Tensor  # (batch, source), True where there is no word


class GateCell(nn.Module):
    """One step of an LSTM; each gate is computed by matmuls of its own."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.of_input = nn.ModuleDict({gate: nn.Linear(inputs, width) for gate in GATES})
        self.of_state = nn.ModuleDict({gate: nn.Linear(width, width, bias=False) for gate in GATES})

    def rows(self, name: str) -> list[Tensor]:
        """Return one kind of parameter for all gates: `of_input.weight`, `of_input.bias` or `of_state.weight`."""
        products, _, kind = name.partition(".")
        return [self.get_parameter(f"{products}.{gate}.{kind}") for gate in GATES]

    def forward(self, x: Tensor, state: State) -> State:
        """Return the state after an input of shape (batch, inputs)."""
        output, memory = state
        admit, forget, candidate, put_out = (self.of_input[gate](x) + self.of_state[gate](output) for gate in GATES)
        memory = torch.sigmoid(forget) * memory + torch.sigmoid(admit) * torch.tanh(candidate)
        return torch.sigmoid(put_out) * torch.tanh(memory), memory


class PackedLayer(nn.Module):
    """A bidirectional LSTM layer, computed by torch's own operator for sequences of several lengths."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, bidirectional=True)
        for name in ("bias_hh_l0", "bias_hh_l0_reverse"):
            without_second_bias(self.lstm.get_parameter(name))

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[State, State]]:
        """Return the outputs of both directions, joined, and the last state of each; `lengths` is on the CPU."""
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        outputs, (output, memory) = self.lstm(packed)
        padded, _ = pad_packed_sequence(outputs, total_length=len(x))
        return padded, ((output[0], memory[0]), (output[1], memory[1]))


class SteppedLayer(nn.Module):
    """A bidirectional LSTM layer, computed step by step; padding does not change a state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ahead, self.back = GateCell(width, width), GateCell(width, width)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[State, State]]:
        """Return the outputs of both directions, joined, and the last state of each."""
        steps = torch.arange(len(x), device=x.device)
        words = (steps[:, None] < lengths.to(x.device)).unsqueeze(-1)  # (source, batch, 1)
        ahead, last = direction(self.ahead, x, words, range(len(x)))
        back, first = direction(self.back, x, words, range(len(x) - 1, -1, -1))
        return torch.cat([torch.stack(ahead), torch.stack(back[::-1])], 2), (last, first)


def direction(cell: GateCell, x: Tensor, words: Tensor, steps: range) -> tuple[list[Tensor], State]:
    """Return a cell's outputs in the order of the steps, and its last state."""
    state = (x.new_zeros(x.shape[1:]), x.new_zeros(x.shape[1:]))
    outputs = []
    inputs = x.unbind()
    for step in steps:
        output, memory = cell(inputs[step], state)
        state = (torch.where(words[step], output, state[0]), torch.where(words[step], memory, state[1]))
        outputs.append(state[0])
    return outputs, state


class Encoder(nn.Module):
    """Turns the words of the source into outputs that the decoder attends to, and into the decoder's first states."""

    def __init__(self, width: int, *, fused: bool, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SOURCE_WORDS, width)
        self.dropout = nn.Dropout(dropout)
        self.layer = PackedLayer(width) if fused else SteppedLayer(width)

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[State, State]]:
        """Return the outputs (source, batch, 2 × width) and the last state of each direction."""
        outputs, states = self.layer(self.dropout(self.embedding(source)), lengths)
        return outputs, states


class Decoder(nn.Module):
    """Turns the words of the target and the memory of the source into the logits of the next words."""

    def __init__(self, width: int, *, fused: bool, dropout: float) -> None:
        super().__init__()
        cell = fused_cell if fused else GateCell
        self.embedding = nn.Embedding(TARGET_WORDS, width)
        self.dropout = nn.Dropout(dropout)
        self.first, self.second = cell(2 * width, width), cell(width, width)
        self.memory = nn.Linear(2 * width, width, bias=False)
        self.scale = nn.Parameter(torch.ones(()))
        self.attention = nn.Linear(3 * width, width, bias=False)
        self.projection = nn.Linear(width, TARGET_WORDS, bias=False)

    def remember(self, outputs: Tensor, lengths: Tensor) -> Memory:
        """Return the memory of a source: the outputs of the encoder, and the keys computed from them."""
        values = outputs.transpose(0, 1)
        steps = torch.arange(values.shape[1], device=values.device)
        return Memory(values, self.memory(values), steps >= lengths.to(values.device)[:, None])

    def forward(self, words: Tensor, memory: Memory, states: tuple[State, State]) -> Tensor:
        """Return the logits, (target, batch, vocabulary), of the word after each of `words`, (target, batch)."""
        embedded = self.embedding(words)
        attention = torch.zeros_like(embedded[0])
        vectors = []
        for word in embedded.unbind():
            attention, states = self.step(word, attention, memory, states)
            vectors.append(attention)
        logits: Tensor = self.projection(torch.stack(vectors))
        return logits

    def step(
        self, word: Tensor, attention: Tensor, memory: Memory, states: tuple[State, State]
    ) -> tuple[Tensor, tuple[State, State]]:
        """Return the attention vector (batch, width) and the states after one more word, which is given embedded."""
        first = self.first(self.dropout(torch.cat([word, attention], 1)), states[0])
        second = self.second(self.dropout(first[0]), states[1])
        return self.attend(second[0], memory), (first, second)

    def attend(self, query: Tensor, memory: Memory) -> Tensor:
        """Return the attention vector of a query (batch, width)."""
        scores = self.scale * torch.bmm(memory.keys, query.unsqueeze(2)).squeeze(2)
        shares = torch.softmax(scores.masked_fill(memory.padding, -torch.inf), 1)
        context = torch.bmm(shares.unsqueeze(1), memory.values).squeeze(1)
        vector: Tensor = self.attention(torch.cat([query, context], 1))
        return vector


class Seq2Seq(nn.Module):
    """Turns sentences, and the words of their translations so far, into the logits of the next words."""

    def __init__(self, width: int, *, fused: bool, dropout: float) -> None:
        super().__init__()
        self.encoder = Encoder(width, fused=fused, dropout=dropout)
        self.decoder = Decoder(width, fused=fused, dropout=dropout)

    def forward(self, source: Tensor, lengths: Tensor, words: Tensor) -> Tensor:
        """Return the logits (target, batch, vocabulary); `source` is (source, batch), and `lengths` is on the CPU."""
        outputs, states = self.encoder(source, lengths)
        logits: Tensor = self.decoder(words, self.decoder.remember(outputs, lengths), states)
        return logits

    def translate(self, source: Tensor, lengths: Tensor, longest: int) -> Tensor:
        """Return greedy translations, (batch, at most `longest`); it stops once every row has an `END`."""
        outputs, states = self.encoder(source, lengths)
        memory = self.decoder.remember(outputs, lengths)
        word = torch.full_like(source[0], START)
        attention = torch.zeros_like(memory.keys[:, 0])
        words: list[Tensor] = []
        ended = torch.zeros_like(word, dtype=torch.bool)
        while len(words) < longest and not ended.all():
            attention, states = self.decoder.step(self.decoder.embedding(word), attention, memory, states)
            word = self.decoder.projection(attention).argmax(1)
            words.append(word)
            ended |= word == END
        return torch.stack(words, 1)


def fused_cell(inputs: int, width: int) -> nn.LSTMCell:
    """Return torch's own cell; its second bias stays zero."""
    cell = nn.LSTMCell(inputs, width)
    without_second_bias(cell.bias_hh)
    return cell


def without_second_bias(bias: nn.Parameter) -> None:
    """Keep a bias at zero, because another bias of the same gates makes it redundant."""
    nn.init.zeros_(bias)
    bias.requires_grad = False


def parts(model: Seq2Seq) -> dict[str, list[Tensor]]:
    """Map each name in `initial` to the parameters that, joined by rows, make up this weight."""
    encoder, decoder = model.encoder, model.decoder
    found = {
        "encoder.embedding.weight": [encoder.embedding.weight],
        "decoder.embedding.weight": [decoder.embedding.weight],
        "decoder.memory.weight": [decoder.memory.weight],
        "decoder.attention.weight": [decoder.attention.weight],
        "decoder.projection.weight": [decoder.projection.weight],
    }
    if isinstance(encoder.layer, PackedLayer):
        lstm = encoder.layer.lstm
        for name, suffix in (("encoder.forward", "l0"), ("encoder.backward", "l0_reverse")):
            kinds = {"input": "weight_ih", "state": "weight_hh", "bias": "bias_ih"}
            found |= {f"{name}.{kind}": [lstm.get_parameter(f"{own}_{suffix}")] for kind, own in kinds.items()}
    else:
        found |= of_cell("encoder.forward", encoder.layer.ahead) | of_cell("encoder.backward", encoder.layer.back)
    return found | of_cell("decoder.first", decoder.first) | of_cell("decoder.second", decoder.second)


def of_cell(name: str, cell: nn.LSTMCell | GateCell) -> dict[str, list[Tensor]]:
    """Map the names of a cell's weights to their parameters."""
    if isinstance(cell, nn.LSTMCell):
        return {f"{name}.input": [cell.weight_ih], f"{name}.state": [cell.weight_hh], f"{name}.bias": [cell.bias_ih]}
    return {
        f"{name}.input": cell.rows("of_input.weight"),
        f"{name}.state": cell.rows("of_state.weight"),
        f"{name}.bias": cell.rows("of_input.bias"),
    }
