"""Deep Speech 2's layers: shape, parameters and multiply-accumulates of each, independent of any framework."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tbdprof.suite.data.speech import BINS
from tbdprof.suite.layers import Dense
from tbdprof.suite.workload import Options

WIDTH = 256
FULL_WIDTH = 1760
LAYERS = 5
FILTERS = 32
SYMBOLS = 29
DIRECTIONS = ("ahead", "back")
GATES = {"gru": 3, "rnn": 1}
BIASES = {"gru": 2, "rnn": 1}  # for each gate


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution over time and frequency, without bias; it pads by half its kernel."""

    name: str
    inputs: int  # channels
    outputs: int
    kernel: tuple[int, int]  # sizes along time and frequency
    stride: tuple[int, int]
    bins: int  # frequency bins of its output

    @property
    def shape(self) -> tuple[int, ...]:
        """The weight's shape: outputs, inputs, time, frequency."""
        return (self.outputs, self.inputs, *self.kernel)

    @property
    def padding(self) -> tuple[int, int]:
        """Zeros at both ends of time and of frequency."""
        return (self.kernel[0] // 2, self.kernel[1] // 2)

    @property
    def parameters(self) -> int:
        """Trainable parameters."""
        return prod(self.shape)

    @property
    def macs(self) -> int:
        """Multiply-accumulates for one position in time."""
        return prod(self.shape) * self.bins


@dataclass(frozen=True, slots=True)
class Normalization:
    """Batch normalization over all frames without padding."""

    name: str
    channels: int

    @property
    def parameters(self) -> int:
        """Trainable parameters."""
        return 2 * self.channels


@dataclass(frozen=True, slots=True)
class Recurrent:
    """One direction of a recurrent layer; the gates of a GRU are reset, update, new."""

    name: str
    inputs: int
    width: int
    cell: str

    @property
    def input_shape(self) -> tuple[int, int]:
        """The shape of the weight applied to the inputs."""
        return (GATES[self.cell] * self.width, self.inputs)

    @property
    def state_shape(self) -> tuple[int, int]:
        """The shape of the weight applied to the state."""
        return (GATES[self.cell] * self.width, self.width)

    @property
    def parameters(self) -> int:
        """Trainable parameters."""
        biases = BIASES[self.cell] * GATES[self.cell] * self.width
        return prod(self.input_shape) + prod(self.state_shape) + biases


Layer = Convolution | Normalization | Recurrent | Dense

CONVOLUTIONS = (
    Convolution("conv1", 1, FILTERS, (11, 41), (2, 2), bins=(BINS + 1) // 2),
    Convolution("conv2", FILTERS, FILTERS, (11, 21), (1, 2), bins=(BINS + 3) // 4),
)
FEATURES = FILTERS * CONVOLUTIONS[-1].bins  # of a frame after the convolutions


def width_of(options: Options) -> int:
    """Return the width of the recurrent and dense layers."""
    return FULL_WIDTH if options["full_size"] == "on" else WIDTH


def layers(width: int = WIDTH, cell: str = "gru") -> tuple[Layer, ...]:
    """Return all layers, from a spectrogram to the symbols' scores."""
    return tuple(_layers(width, cell))


def parameters(width: int = WIDTH, cell: str = "gru") -> int:
    """Return how many trainable parameters the network has."""
    return sum(layer.parameters for layer in layers(width, cell))


def redundant_biases(width: int = WIDTH, cell: str = "gru") -> int:
    """Return how many additional biases torch and MXNet have; they stay zero and are not trained."""
    if cell == "gru":
        return 0
    return sum(layer.width for layer in layers(width, cell) if isinstance(layer, Recurrent))


def kept_values(width: int, cell: str) -> int:
    """Return about how many values training keeps for each position after the first convolution."""
    maps = 4 * FILTERS * sum(layer.bins for layer in CONVOLUTIONS)  # outputs: convolved, normalized, clipped, padded
    recurrent = LAYERS * len(DIRECTIONS) * (2 * GATES[cell] + 1) * width  # the gates' inputs, the gates, the state
    return 2 * BINS + maps + recurrent + 2 * LAYERS * width + 2 * width + 2 * SYMBOLS


def _layers(width: int, cell: str) -> Iterator[Layer]:
    for number, convolution in enumerate(CONVOLUTIONS, 1):
        yield convolution
        yield Normalization(f"norm{number}", convolution.outputs)
    for number in range(1, LAYERS + 1):
        inputs = FEATURES if number == 1 else width
        for direction in DIRECTIONS:
            yield Recurrent(f"recurrent{number}.{direction}", inputs, width, cell)
        yield Normalization(f"recurrent{number}.norm", width)
    yield Dense("dense", width, width)
    yield Dense("symbols", width, SYMBOLS)
