"""Seq2Seq's network in MXNet's Gluon. Time is the first axis, the batch the second."""

from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import gluon, nd
from mxnet.gluon import nn, rnn
from numpy.typing import NDArray

from tbdprof.suite.data.inputs import END, START
from tbdprof.suite.seq2seq.architecture import GATES, SOURCE_WORDS, TARGET_WORDS

State = list[mx.nd.NDArray]  # a cell's output and its memory, each (batch, width)

# Of a gate's sum at padding: the sigmoid is exactly 0 or 1 there, in every precision.
SHUT, OPEN = -1000.0, 1000.0


class GateCell(nn.HybridBlock):  # type: ignore[misc]
    """One step of an LSTM; each gate is computed by matmuls of its own."""

    def __init__(self, inputs: int, width: int, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.of_input, self.of_state = nn.HybridSequential(prefix=""), nn.HybridSequential(prefix="")
            for gate in GATES:
                self.of_input.add(nn.Dense(width, in_units=inputs, prefix=f"{gate}_of_input_"))
                self.of_state.add(nn.Dense(width, in_units=width, use_bias=False, prefix=f"{gate}_of_state_"))

    def hybrid_forward(self, F: Any, x: Any, state: State) -> tuple[Any, State]:  # noqa: N803
        """Return the output and the state after an input of shape (batch, inputs)."""
        output, memory = state
        sums = (own(x) + last(output) for own, last in zip(self.of_input, self.of_state, strict=True))
        admit, forget, candidate, put_out = sums
        memory = F.sigmoid(forget) * memory + F.sigmoid(admit) * F.tanh(candidate)
        output = F.sigmoid(put_out) * F.tanh(memory)
        return output, [output, memory]


class FusedLayer(nn.HybridBlock):  # type: ignore[misc]
    """A bidirectional LSTM layer, computed by MXNet's own operator for sequences.

    That operator respects the lengths of sequences only with cuDNN. On a CPU it computes padding like words (tried:
    MXNet 1.9.1). So its input has one more feature here, which is 1 at padding. The weights of that feature are never
    trained. At padding they close the input gate and open the forget gate, so a cell's memory passes padding unchanged.
    """

    def __init__(self, width: int, **names: Any) -> None:
        super().__init__(**names)
        self.width = width
        with self.name_scope():
            for direction in ("ahead", "back"):
                for kind, shape in (("input", (4 * width, width)), ("state", (4 * width, width)), ("bias", 4 * width)):
                    name = f"{direction}_{kind}"
                    setattr(self, name, self.params.get(name, shape=shape))
            self.second_bias = self.params.get("second_bias", shape=(2, 4 * width), grad_req="null")
            self.at_padding = self.params.get("at_padding", shape=(4 * width, 1), grad_req="null")

    def hybrid_forward(self, F: Any, x: Any, lengths: Any, zeros: Any, **weights: Any) -> tuple[Any, ...]:  # noqa: N803
        """Return the outputs of both directions, joined, and the last output and memory of each direction.

        `zeros` is the state before the first word, (2, batch, width).
        """
        words = F.SequenceMask(F.ones_like(F.slice_axis(x, axis=2, begin=0, end=1)), lengths, use_sequence_length=True)
        matrices, biases = [], []
        for number, direction in enumerate(("ahead", "back")):
            wider = F.concat(weights[f"{direction}_input"], weights["at_padding"], dim=1)
            matrices += [wider.reshape(-1), weights[f"{direction}_state"].reshape(-1)]
            second = F.slice_axis(weights["second_bias"], axis=0, begin=number, end=number + 1)
            biases += [weights[f"{direction}_bias"], second.reshape(-1)]
        outputs, last_outputs, memories = F.RNN(
            F.concat(x, 1 - words, dim=2),
            F.concat(*matrices, *biases, dim=0),
            zeros,
            zeros,
            mode="lstm",
            state_size=self.width,
            num_layers=1,
            bidirectional=True,
            state_outputs=True,
        )
        ahead = F.SequenceLast(
            F.slice_axis(outputs, axis=2, begin=0, end=self.width), lengths, use_sequence_length=True
        )
        _, back = F.split(last_outputs, num_outputs=2, axis=0, squeeze_axis=True)
        return outputs, ahead, back, *F.split(memories, num_outputs=2, axis=0, squeeze_axis=True)


class SteppedLayer(gluon.Block):  # type: ignore[misc]
    """A bidirectional LSTM layer, computed step by step; padding does not change a state."""

    def __init__(self, width: int, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.ahead, self.back = GateCell(width, width, prefix="ahead_"), GateCell(width, width, prefix="back_")

    def forward(self, x: mx.nd.NDArray, lengths: mx.nd.NDArray, zeros: mx.nd.NDArray) -> tuple[mx.nd.NDArray, ...]:
        """Return the outputs of both directions, joined, and the last output and memory of each direction."""
        steps, state = steps_of(x), [zeros[0], zeros[1]]
        words = steps_of(nd.SequenceMask(nd.ones(x.shape, x.context, x.dtype), lengths, use_sequence_length=True))
        ahead, last = direction(self.ahead, steps, words, state)
        back, first = direction(self.back, steps[::-1], words[::-1], state)
        outputs = nd.concat(nd.stack(*ahead), nd.stack(*back[::-1]), dim=2)
        return outputs, last[0], first[0], last[1], first[1]


def direction(
    cell: GateCell, steps: Sequence[mx.nd.NDArray], words: Sequence[mx.nd.NDArray], state: State
) -> tuple[State, State]:
    """Return a cell's outputs in the order of the steps, and its last state; `words` is 1 at words and 0 at padding."""
    outputs = []
    for x, word in zip(steps, words, strict=True):
        _, after = cell(x, state)
        state = [nd.where(word, new, old) for new, old in zip(after, state, strict=True)]
        outputs.append(state[0])
    return outputs, state


def steps_of(x: mx.nd.NDArray) -> list[mx.nd.NDArray]:
    """Return an array's values at each step, as a list."""
    return nd.split(x, len(x), axis=0, squeeze_axis=True) if len(x) > 1 else [x.reshape((-3, -2))]


class Encoder(gluon.Block):  # type: ignore[misc]
    """Turns the words of the source into outputs that the decoder attends to, and into the decoder's first states."""

    def __init__(self, width: int, *, fused: bool, dropout: float, **names: Any) -> None:
        super().__init__(**names)
        self.width = width
        with self.name_scope():
            self.embedding = nn.Embedding(SOURCE_WORDS, width)
            self.dropout = nn.Dropout(dropout)
            self.layer = FusedLayer(width, prefix="layer_") if fused else SteppedLayer(width, prefix="layer_")

    def forward(self, source: mx.nd.NDArray, lengths: mx.nd.NDArray) -> tuple[mx.nd.NDArray, list[mx.nd.NDArray]]:
        """Return the outputs (source, batch, 2 × width) and the decoder's first states (outputs, then memories)."""
        x = self.dropout(self.embedding(source))
        outputs, *states = self.layer(x, lengths, nd.zeros((2, x.shape[1], self.width), x.context, x.dtype))
        return outputs, states


class Step(nn.HybridBlock):  # type: ignore[misc]
    """One step of the decoder: it takes one more word."""

    def __init__(self, width: int, *, fused: bool, dropout: float, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.dropout = nn.Dropout(dropout)
            self.first = cell(2 * width, width, fused=fused, prefix="first_")
            self.second = cell(width, width, fused=fused, prefix="second_")
            self.scale = self.params.get("scale", shape=(1,), init="ones")
            self.attention = nn.Dense(width, in_units=3 * width, use_bias=False, prefix="attention_")

    def hybrid_forward(
        self,
        F: Any,  # noqa: N803
        word: Any,
        attention: Any,
        states: list[Any],
        values: Any,
        keys: Any,
        lengths: Any,
        scale: Any,
    ) -> tuple[Any, list[Any]]:
        """Return the attention vector (batch, width) and the new states; `values` and `keys` are (batch, source, …)."""
        output, (_, first) = self.first(self.dropout(F.concat(word, attention, dim=1)), [states[0], states[2]])
        query, (_, second) = self.second(self.dropout(output), [states[1], states[3]])
        scores = F.broadcast_mul(F.batch_dot(keys, F.expand_dims(query, 2)).squeeze(2), scale)
        shares = F.softmax(scores, lengths, use_length=True)
        context = F.batch_dot(F.expand_dims(shares, 1), values).squeeze(1)
        return self.attention(F.concat(query, context, dim=1)), [output, query, first, second]


class Decoder(gluon.Block):  # type: ignore[misc]
    """Turns the words of the target and the outputs of the encoder into the logits of the next words."""

    def __init__(self, width: int, *, fused: bool, dropout: float, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.embedding = nn.Embedding(TARGET_WORDS, width)
            self.memory = nn.Dense(width, in_units=2 * width, use_bias=False, flatten=False, prefix="memory_")
            self.step = Step(width, fused=fused, dropout=dropout, prefix="step_")
            self.projection = nn.Dense(
                TARGET_WORDS, in_units=width, use_bias=False, flatten=False, prefix="projection_"
            )

    def remember(self, outputs: mx.nd.NDArray, lengths: mx.nd.NDArray) -> tuple[mx.nd.NDArray, ...]:
        """Return what each step attends to: values and keys, both (batch, source, …), and the sources' lengths."""
        values = nd.swapaxes(outputs, 0, 1)
        return values, self.memory(values), lengths.astype("int32")

    def forward(
        self, words: mx.nd.NDArray, outputs: mx.nd.NDArray, lengths: mx.nd.NDArray, states: list[mx.nd.NDArray]
    ) -> mx.nd.NDArray:
        """Return the logits, (target, batch, vocabulary), of the word after each of `words`, (target, batch)."""
        memory = self.remember(outputs, lengths)
        attention = nd.zeros_like(states[0])
        vectors = []
        for word in steps_of(self.embedding(words)):
            attention, states = self.step(word, attention, states, *memory)
            vectors.append(attention)
        return self.projection(nd.stack(*vectors))


class Seq2Seq(gluon.Block):  # type: ignore[misc]
    """Turns sentences, and the words of their translations so far, into the logits of the next words."""

    def __init__(self, width: int, *, fused: bool, dropout: float, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.encoder = Encoder(width, fused=fused, dropout=dropout, prefix="encoder_")
            self.decoder = Decoder(width, fused=fused, dropout=dropout, prefix="decoder_")

    def forward(self, source: mx.nd.NDArray, lengths: mx.nd.NDArray, words: mx.nd.NDArray) -> mx.nd.NDArray:
        """Return the logits (target, batch, vocabulary); `source` is (source, batch) and `lengths` is (batch,)."""
        outputs, states = self.encoder(source, lengths)
        return self.decoder(words, outputs, lengths, states)

    def translate(self, source: mx.nd.NDArray, lengths: mx.nd.NDArray, longest: int) -> NDArray[np.int32]:
        """Return greedy translations, (batch, at most `longest`); it stops once every row has an `END`."""
        outputs, states = self.encoder(source, lengths)
        memory = self.decoder.remember(outputs, lengths)
        word, attention = nd.full(lengths.shape, START, lengths.context), nd.zeros_like(states[0])
        words: list[NDArray[np.int32]] = []
        ended = np.zeros(lengths.shape, bool)
        while len(words) < longest and not ended.all():
            attention, states = self.decoder.step(self.decoder.embedding(word), attention, states, *memory)
            word = self.decoder.projection(attention).argmax(1)
            words.append(word.asnumpy().astype(np.int32))
            ended |= words[-1] == END
        return np.stack(words, 1)


def cell(inputs: int, width: int, *, fused: bool, prefix: str) -> rnn.LSTMCell | GateCell:
    """Return a cell: Gluon's own if `fused`, else a `GateCell`."""
    if not fused:
        return GateCell(inputs, width, prefix=prefix)
    own = rnn.LSTMCell(width, input_size=inputs, prefix=prefix)
    own.h2h_bias.grad_req = "null"  # which i2h_bias beside it makes redundant
    return own


def parts(model: Seq2Seq) -> dict[str, list[gluon.Parameter]]:
    """Map each name in `initial` to the parameters that, joined by rows, make up this weight."""
    layer, decoder = model.encoder.layer, model.decoder
    found = {
        "encoder.embedding.weight": [model.encoder.embedding.weight],
        "decoder.embedding.weight": [decoder.embedding.weight],
        "decoder.memory.weight": [decoder.memory.weight],
        "decoder.attention.weight": [decoder.step.attention.weight],
        "decoder.projection.weight": [decoder.projection.weight],
    }
    for name, direction in (("encoder.forward", "ahead"), ("encoder.backward", "back")):
        if isinstance(layer, FusedLayer):
            found |= {f"{name}.{kind}": [getattr(layer, f"{direction}_{kind}")] for kind in ("input", "state", "bias")}
        else:
            found |= of_cell(name, getattr(layer, direction))
    return found | of_cell("decoder.first", decoder.step.first) | of_cell("decoder.second", decoder.step.second)


def of_cell(name: str, cell: rnn.LSTMCell | GateCell) -> dict[str, list[gluon.Parameter]]:
    """Map the names of a cell's weights to their parameters."""
    if isinstance(cell, GateCell):
        return {
            f"{name}.input": [gate.weight for gate in cell.of_input],
            f"{name}.state": [gate.weight for gate in cell.of_state],
            f"{name}.bias": [gate.bias for gate in cell.of_input],
        }
    return {f"{name}.input": [cell.i2h_weight], f"{name}.state": [cell.h2h_weight], f"{name}.bias": [cell.i2h_bias]}
