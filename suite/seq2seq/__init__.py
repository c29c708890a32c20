"""Seq2Seq's facts: TensorFlow NMT's network for IWSLT15 (Luong, Brevdo and Zhao, 2017, its published iwslt15.json).

The TBD paper (Zhu et al., 2018, arXiv:1803.06905) ran it in TensorFlow, and another network, Sockeye, in MXNet. Here
all frameworks have the same network. The encoder is one bidirectional LSTM layer. The decoder has two LSTM layers: the
first starts from the last state of the encoder's forward direction, the second from that of its backward direction.
Attention is Luong's (2015, arXiv:1508.04025), with scores scaled by one learned number. Its result, the attention
vector, goes into the next step of the decoder (input feeding). The attention layer has neither bias nor tanh, as in
TensorFlow's AttentionWrapper. Dropout is at the inputs of each LSTM; both directions of the encoder share a mask here,
because a fused operator has one input.

Padding has no effect: the encoder skips it, attention gives it no weight, and the loss leaves it out. The loss is the
sum of the cross entropy over a batch's tokens, divided by the number of its sentences, as in TensorFlow NMT. Gradients
are clipped by their joint norm. The learning rate is 1 at a batch of 128, as in TensorFlow NMT, and linear in the batch
(Goyal et al., 2017, arXiv:1706.02677, section 2.1): at 1, batches of 8 diverge (tried). It does not decay in the few
steps of a run.

A cell has one bias per gate. The biases of the forget gates begin at 1. This trains like TensorFlow NMT's constant 1
plus a bias that begins at 0. The fused operators of torch and MXNet add a second bias, which is kept at zero and is not
trained. It does not count as a parameter here, but it takes memory (`SECOND_BIASES`). MXNet's fused operator also takes
the columns of weights that close its gates at padding (`tbdprof.suite.seq2seq.on_mxnet_network`).

`--rnn fused` uses the operators that a framework has for LSTMs. `--rnn cell` computes each gate by matmuls of its own
and every step by element-wise operators. Input feeding makes every step of the decoder wait for the attention vector of
the step before. Both layers of the decoder are on that path, so no framework can run either of them over the sequence
in one operator. So `fused` is

- in the encoder: torch's `nn.LSTM` on packed sequences (one cuDNN call on a GPU; on a CPU torch's own loop in C++). In
  MXNet it is one `RNN` operator for both directions, in Keras `LSTM` with a mask (cuDNN on a GPU, a loop of cells on a
  CPU);
- in the decoder, step by step: torch's `nn.LSTMCell` (two matmuls, and one other kernel on a GPU), Gluon's and Keras'
  `LSTMCell` (two matmuls per step). (MXNet's `RNN` operator over one step packs the weights again each time: on a CPU
  this was six times as slow.)

`tbdprof.suite.seq2seq.architecture` holds the layers; the figures here are sums over them.
"""

from collections.abc import Mapping

from tbdprof.suite.seq2seq.architecture import WIDTH, parameters, saved_values
from tbdprof.suite.workload import PERIOD, Config, Option, Spec

DROPOUT = 0.2  # of the values that an LSTM is given
LARGEST_NORM = 5.0  # of all gradients together
FORGET_BIAS = 1.0
UNIFORM = 0.1  # weights begin between this and its negative

# Values of the second biases that a framework's fused operators add, at the paper's width: zero, and not trained.
SECOND_BIASES: Mapping[str, int] = {"torch": 4 * 4 * WIDTH, "mxnet": 4 * 4 * WIDTH, "tensorflow": 0}

_PARAMETERS = parameters()


def learning_rate(batch_size: int) -> float:
    """Return the learning rate at a batch size: 1 at 128 sentences (TensorFlow NMT), and linear in the batch size."""
    return batch_size / 128


def sample_flops(config: Config, framework: str) -> float:
    """Return the FLOPs of a training step for each sentence pair, averaged over a period of synthetic batches."""
    from tbdprof.suite.seq2seq.products import sample_flops as of_layers  # which brings numpy

    return of_layers(config, framework)


SPEC = Spec(
    name="seq2seq",
    title="Seq2Seq",
    task="machine translation",
    dataset="IWSLT15",
    unit="sentences",
    sample_unit="sentences",
    layers="5",
    dominant_layer="LSTM",
    parameters=_PARAMETERS,
    default_batch={"cpu": 8, "cuda": 128},
    optimizer="SGD, learning rate batch / 128, gradients clipped at norm 5",
    options=(
        Option("rnn", "fused", "LSTMs by the framework's own operators, or gate by gate", ("fused", "cell")),
        Option("dropout", "on", "whether a fifth of what an LSTM is given is dropped", ("on", "off")),
        Option("width", WIDTH, "values of an embedding, of an LSTM's state and of the attention vector"),
    ),
    fixed_bytes=2 * 4 * _PARAMETERS,  # weights and their gradients
    sample_bytes=lambda options: 4 * saved_values(int(options["width"])),
    sample_flops=sample_flops,
    period=PERIOD,
    switches={
        "torch": ("fused_optimizer",),
        "mxnet": ("hybridize",),
    },
)
