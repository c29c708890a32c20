"""The layers of Deep Speech 2 in MXNet's Gluon."""

from typing import Any, NamedTuple

import mxnet as mx
from mxnet import gluon, nd
from mxnet.gluon import nn, rnn

from tbdprof.suite.deep_speech2 import CLIP, NORM_EPSILON, NORM_MOMENTUM
from tbdprof.suite.deep_speech2.architecture import CONVOLUTIONS, FEATURES, LAYERS, SYMBOLS


class Packing(NamedTuple):
    """`tbdprof.suite.deep_speech2.packing.Packing` as MXNet's arrays."""

    lengths: mx.nd.NDArray  # (batch,), number of positions without padding
    places: mx.nd.NDArray  # (packed,), index of each position in arrays of (times × batch)
    packed: mx.nd.NDArray  # (times, batch), index of each position among the packed ones


class Convolution(nn.HybridBlock):  # type: ignore[misc]
    """Turns (batch, channels, time, frequency) into (packed, channels, frequency), normalized, clipped, unpadded."""

    def __init__(self, number: int, **names: Any) -> None:
        super().__init__(**names)
        layer = CONVOLUTIONS[number - 1]
        sizes = (layer.outputs, layer.kernel, layer.stride, layer.padding)
        with self.name_scope():
            self.conv = nn.Conv2D(*sizes, use_bias=False, in_channels=layer.inputs)
            self.norm = normalization(layer.outputs)

    def hybrid_forward(self, F: Any, maps: Any, places: Any) -> Any:  # noqa: N803
        """Return the output at the positions without padding."""
        x = F.transpose(self.conv(maps), (2, 0, 1, 3))
        return F.clip(self.norm(packed(F, x, places)), 0, CLIP)


class Recurrent(gluon.Block):  # type: ignore[misc]
    """A bidirectional recurrent layer, the outputs of both directions summed and normalized.

    If fused, each direction is one operator; otherwise a cell is applied step by step. Both also run over the padding,
    which is at the end, and their outputs there are dropped.
    """

    def __init__(self, inputs: int, width: int, cell: str, kind: str, **names: Any) -> None:
        super().__init__(**names)
        fused = kind == "fused"
        layers = {("gru", True): rnn.GRU, ("gru", False): rnn.GRUCell, ("rnn", False): rnn.RNNCell}
        with self.name_scope():
            for direction in ("ahead", "back"):
                if (cell, fused) == ("rnn", True):
                    setattr(self, direction, rnn.RNN(width, activation="tanh", input_size=inputs))
                else:
                    setattr(self, direction, layers[cell, fused](width, input_size=inputs))
            self.norm = normalization(width)
        if cell == "rnn":
            self.collect_params(".*h2h_bias").setattr("grad_req", "null")
        self.fused = fused

    def forward(self, places: mx.nd.NDArray, packing: Packing) -> mx.nd.NDArray:
        """Return the outputs (packed, width) for packed inputs (packed, inputs)."""
        ahead = filled(nd, places, packing.lengths, packing.packed)
        back = self._run(self.back, turned(ahead, packing))
        summed = self._run(self.ahead, ahead) + turned(back, packing)
        return self.norm(packed(nd, summed, packing.places))

    def _run(self, layer: gluon.Block, x: mx.nd.NDArray) -> mx.nd.NDArray:
        if self.fused:
            return layer(x)
        zeros = layer.begin_state(x.shape[1], ctx=x.context, dtype=x.dtype)
        outputs, _ = layer.unroll(len(x), x, zeros, layout="TNC", merge_outputs=True)
        return outputs


class DeepSpeech2(gluon.Block):  # type: ignore[misc]
    """Spectrograms (batch, frames, 161) to the scores of symbols (times, batch, 29)."""

    def __init__(self, width: int, cell: str, kind: str, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.conv1 = Convolution(1)
            self.conv2 = Convolution(2)
            self.recurrent = nn.Sequential()
            for number in range(LAYERS):
                self.recurrent.add(Recurrent(width if number else FEATURES, width, cell, kind))
            self.dense = nn.Dense(width, in_units=width)
            self.symbols = nn.Dense(SYMBOLS, in_units=width)

    def forward(self, spectrograms: mx.nd.NDArray, packing: Packing) -> mx.nd.NDArray:
        """Return the scores; scores at padding are 0."""
        x = self.conv1(spectrograms.expand_dims(1), packing.places)
        x = filled(nd, x, packing.lengths, packing.packed).transpose((1, 2, 0, 3))
        x = self.conv2(x, packing.places).flatten()
        for layer in self.recurrent:
            x = layer(x, packing)
        x = self.symbols(nd.clip(self.dense(x), 0, CLIP))
        return filled(nd, x, packing.lengths, packing.packed)


def packed(F: Any, padded: Any, places: Any) -> Any:  # noqa: N803
    """Return the positions of arrays (times, batch, …) without padding, one after the other."""
    return F.take(F.reshape(padded, (-3, -2)), places)


def filled(F: Any, places: Any, lengths: Any, whither: Any) -> Any:  # noqa: N803
    """Return packed positions as arrays (times, batch, …), padded with zeros."""
    return F.SequenceMask(F.take(places, whither), lengths, use_sequence_length=True)


def turned(padded: mx.nd.NDArray, packing: Packing) -> mx.nd.NDArray:
    """Return arrays (times, batch, …) with each utterance reversed in time and its padding still at the end."""
    return nd.SequenceReverse(padded, packing.lengths, use_sequence_length=True)


def normalization(channels: int) -> nn.BatchNorm:
    """Return a batch normalization over packed positions."""
    return nn.BatchNorm(epsilon=NORM_EPSILON, momentum=1 - NORM_MOMENTUM, in_channels=channels)
