"""The FLOP count of one training step: the matmuls and convolutions of each layer, summed.

A layer takes the same number of multiply-accumulates for its output, its input's gradient and its weight's gradient.
The first convolution's input needs no gradient, and neither do the zeros that a state begins with. Convolutions also
run over padding; dense layers do not.
"""

from collections.abc import Sequence

from tbdprof.suite.deep_speech2 import architecture, utterances
from tbdprof.suite.deep_speech2.architecture import Convolution, Recurrent, width_of
from tbdprof.suite.deep_speech2.packing import Packing, packing
from tbdprof.suite.layers import Dense
from tbdprof.suite.workload import Config


def step_flops(config: Config, framework: str) -> float:
    """Return the FLOPs that a framework computes per utterance, averaged over a period of synthetic batches."""
    period = utterances.frames(config)
    cell, rnn = str(config.options["cell"]), str(config.options["rnn"])
    macs = sum(batch_macs(batch, width_of(config.options), cell, rnn, framework) for batch in period)
    return 2 * macs / sum(len(batch) for batch in period)


def batch_macs(frames: Sequence[int], width: int, cell: str, rnn: str, framework: str) -> int:
    """Return the multiply-accumulates of a training step on utterances with these numbers of frames, longest first."""
    packed = packing(frames)
    padded, true = packed.packed.size, len(packed.places)
    macs = 0
    for layer in architecture.layers(width, cell):
        if isinstance(layer, Convolution):
            macs += (2 if layer.name == "conv1" else 3) * padded * layer.macs
        elif isinstance(layer, Recurrent):
            macs += _recurrent(layer, packed, rnn, framework)
        elif isinstance(layer, Dense):
            macs += 3 * true * layer.macs
    return macs


def _recurrent(layer: Recurrent, packed: Packing, rnn: str, framework: str) -> int:
    """Return a recurrent layer's multiply-accumulates; torch's packed sequences have no padding."""
    rows, inputs = layer.input_shape
    positions = len(packed.places) if framework == "torch" else packed.packed.size
    return 3 * positions * rows * (inputs + layer.width) - _of_no_state(layer, packed, rnn, framework)


def _of_no_state(layer: Recurrent, packed: Packing, rnn: str, framework: str) -> int:
    """Return the multiply-accumulates that are saved because the initial zero states need no gradient."""
    rows, width = layer.state_shape
    if framework == "tensorflow" or (framework, rnn) == ("mxnet", "fused"):
        return 0  # a loop computes the same in every step; MXNet's operator always computes the first state's gradient
    batch = len(packed.lengths)
    if framework == "torch" and layer.name.endswith("back"):
        batch = int(packed.running[-1])  # utterances that reach the last step; others get their zeros later
    return batch * rows * width
