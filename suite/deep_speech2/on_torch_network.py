"""The layers of Deep Speech 2 in PyTorch."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from tbdprof.suite.deep_speech2 import CLIP, NORM_EPSILON, NORM_MOMENTUM
from tbdprof.suite.deep_speech2.architecture import CONVOLUTIONS, FEATURES, LAYERS, SYMBOLS


class Packing(NamedTuple):
    """`tbdprof.suite.deep_speech2.packing.Packing` as tensors; those that torch must read in advance are on the CPU."""

    lengths: Tensor  # (batch,), number of positions without padding
    running: Tensor  # (times,), utterances that have not ended; on the CPU
    places: Tensor  # (packed,), index of each position in arrays of (times × batch)


class Convolution(nn.Module):
    """Turns (batch, channels, time, frequency) into (packed, channels, frequency), normalized, clipped, unpadded."""

    def __init__(self, number: int) -> None:
        super().__init__()
        layer = CONVOLUTIONS[number - 1]
        self.conv = nn.Conv2d(layer.inputs, layer.outputs, layer.kernel, layer.stride, layer.padding, bias=False)
        self.norm = normalization(layer.outputs)
        self.relu = nn.Hardtanh(0, CLIP, inplace=True)

    def forward(self, maps: Tensor, packing: Packing) -> Tensor:
        """Return the output at the positions without padding."""
        x = self.conv(maps).permute(2, 0, 1, 3)
        x = x.flatten(0, 1).index_select(0, packing.places)
        packed: Tensor = self.relu(self.norm(x))
        return packed


class Fused(nn.Module):
    """A bidirectional recurrent layer as torch's own operator, both directions' outputs summed and normalized."""

    def __init__(self, inputs: int, width: int, cell: str) -> None:
        super().__init__()
        layer = nn.GRU if cell == "gru" else nn.RNN
        self.cells = layer(inputs, width, bidirectional=True)
        self.norm = normalization(width)

    def forward(self, packed: Tensor, packing: Packing) -> Tensor:
        """Return the outputs (packed, width)."""
        outputs, _ = self.cells(PackedSequence(packed, packing.running))
        summed: Tensor = self.norm(outputs.data.unflatten(1, (2, -1)).sum(1))
        return summed


class Stepwise(nn.Module):
    """A bidirectional recurrent layer with a cell for each direction, applied step by step; otherwise like `Fused`."""

    def __init__(self, inputs: int, width: int, cell: str) -> None:
        super().__init__()
        kind = nn.GRUCell if cell == "gru" else nn.RNNCell
        self.width = width
        self.ahead = kind(inputs, width)
        self.back = kind(inputs, width)
        self.norm = normalization(width)

    def forward(self, packed: Tensor, packing: Packing) -> Tensor:
        """Return the outputs (packed, width)."""
        steps = packed.split(packing.running.tolist())  # type: ignore[no-untyped-call]
        # Ahead in time, utterances end one by one, the last rows first; back in time, they begin in the reverse order.
        ahead, state = list[Tensor](), packed.new_zeros(len(steps[0]), self.width)
        for step in steps:
            state = self.ahead(step, state[: len(step)])
            ahead.append(state)
        back, state = list[Tensor](), packed.new_zeros(len(steps[-1]), self.width)
        for step in reversed(steps):
            if len(step) > len(state):
                state = torch.cat([state, state.new_zeros(len(step) - len(state), self.width)])
            state = self.back(step, state)
            back.append(state)
        summed: Tensor = self.norm(torch.cat(ahead) + torch.cat(back[::-1]))
        return summed


class DeepSpeech2(nn.Module):
    """Spectrograms (batch, frames, 161) to the scores of symbols (times, batch, 29)."""

    def __init__(self, width: int, cell: str, rnn: str) -> None:
        super().__init__()
        recurrent = Fused if rnn == "fused" else Stepwise
        self.conv1 = Convolution(1)
        self.conv2 = Convolution(2)
        self.recurrent = nn.ModuleList(recurrent(width if n else FEATURES, width, cell) for n in range(LAYERS))
        self.dense = nn.Linear(width, width)
        self.relu = nn.Hardtanh(0, CLIP, inplace=True)
        self.symbols = nn.Linear(width, SYMBOLS)

    def forward(self, spectrograms: Tensor, packing: Packing) -> Tensor:
        """Return the scores; scores at padding are 0."""
        x = self.conv1(spectrograms.unsqueeze(1), packing)
        x = self.conv2(filled(x, packing).permute(1, 2, 0, 3), packing).flatten(1)
        for layer in self.recurrent:
            x = layer(x, packing)
        return filled(self.symbols(self.relu(self.dense(x))), packing)


def filled(packed: Tensor, packing: Packing) -> Tensor:
    """Return packed positions as arrays (times, batch, …), padded with zeros."""
    times, batch = len(packing.running), len(packing.lengths)
    padded = packed.new_zeros(times * batch, *packed.shape[1:])
    return padded.index_copy(0, packing.places, packed).view(times, batch, *packed.shape[1:])


def normalization(channels: int) -> nn.BatchNorm1d:
    """Return a batch normalization over packed positions."""
    return nn.BatchNorm1d(channels, eps=NORM_EPSILON, momentum=NORM_MOMENTUM)
