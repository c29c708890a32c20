"""Deep Speech 2's facts, after Amodei et al., 2015 (arXiv:1512.02595), in the configuration the TBD paper ran.

That is MXNet's `example/speech_recognition` with its `deepspeech.cfg`: two convolutions over a spectrogram of 161 bins
(41×11 with stride 2×2, 21×11 with stride 2×1, frequency × time, 32 filters each), five bidirectional recurrent layers
of 1,760, a dense layer of 1,760, 29 symbols and CTC; SGD with momentum 0.9, learning rate 3e-4. `--cell gru` is the
default, because that configuration has GRU cells; the TBD paper's prose says regular recurrent cells, `--cell rnn`. The
default here is a narrower network of 256, for the sake of CPUs; `--full-size` is the paper's.

What the papers leave open, the same in every framework:
- Convolutions have no bias, as batch normalization and the clipped ReLU (0 to 20) follow each. They pad by half their
  kernel.
- The outputs of both directions are summed. Batch normalization follows the sum, so that it also stands before the next
  layer's product with its inputs. Amodei et al. (section 3.2) normalize that product itself; a fused operator has the
  product inside, and deepspeech.pytorch places it as here.
- Batch normalization is sequence-wise: its statistics are of all true frames of all utterances of a batch, and of no
  padding. The frames are taken out of the padded arrays for it, and padding is zero again in what follows: the result
  of an utterance does not depend on how far it was filled up.
- A GRU has its reset inside the product (the fused kind; `reset_after` in Keras), so that both of its biases count. The
  plain cell is tanh, the fused operators' own; a clipped ReLU is in none of them, and a ReLU that is not clipped may
  grow over hundreds of steps. It has one bias.
- The dense layer has a bias and the clipped ReLU; the output layer has a bias. Weights begin uniform within one over
  the root of the fan-in (of the width, in recurrent layers), biases with 0.
- Gradients are clipped at the norm of 400 (Amodei et al., section 3; deepspeech.pytorch's default, too). The loss is
  the mean of the utterances' CTC losses. The blank is symbol 0 in all frameworks, and transcripts are filled up with
  it: torch's default, MXNet's `blank_label="first"`, TensorFlow's `blank_index=0`.

Extras of a framework: the plain cells of torch and MXNet carry a second bias, which stays zero and is not trained:
`architecture.redundant_biases` values.

`--rnn fused` is the framework's own operator for a sequence, `--rnn cell` a cell applied step by step.
- torch: `nn.GRU` over a packed sequence; on a CPU that is a loop of smaller operators inside of it. `nn.GRUCell`.
- MXNet: one `RNN` operator a direction, with the sequences turned around before and after the backward one. Its option
  `use_sequence_length` is not used: on a CPU MXNet 1.9.1 ignores it in float32, without a word, and refuses it in
  float64. `GRUCell.unroll`.
- Keras: `GRU`, which is cuDNN's on a GPU; on a CPU there is no such operator and it is a loop in the graph, as
  `RNN(GRUCell)` is everywhere: there both kinds compute the same. `SimpleRNN` is that loop on every device.

Throughput counts seconds of audio, and utterances besides. Padding is told in seconds, lengths in frames of 10 ms,
padding included. Synthetic utterances have the durations of LibriSpeech's train-clean-100 (`utterances`), scaled so
that the longest possible one has `--longest` seconds: 24.5 would be the true ones. Of a data set, longer utterances are
left out (the reference configuration leaves out those above 16 s). Four batches are made and kept, one of each quarter
of the durations; batches are of utterances of about the same duration.

`tbdprof.suite.deep_speech2.architecture` holds the layers; the figures here are sums over them.
"""

from tbdprof.suite.workload import PERIOD, Config, Option, Options, Spec

CLIP = 20.0  # of the ReLU
NORM_EPSILON = 1e-5
NORM_MOMENTUM = 0.1
LEARNING_RATE = 3e-4
MOMENTUM = 0.9
LARGEST_NORM = 400.0
LONGEST = 2  # seconds of an utterance on a CPU

# Trainable parameters with GRU cells; see `architecture.parameters`.
PARAMETERS = 5_896_445
FULL_PARAMETERS = 184_649_853

SPEC = Spec(
    name="deep_speech2",
    title="Deep Speech 2",
    task="speech recognition",
    dataset="LibriSpeech",
    unit="seconds of audio",
    sample_unit="utterances",
    layers="9",
    dominant_layer="RNN",
    parameters=PARAMETERS,  # of the default; 184,649,853 with --full-size
    default_batch={"cpu": 2, "cuda": 16},
    optimizer="SGD, momentum 0.9, learning rate 3e-4, gradients clipped at norm 400",
    options=(
        Option("cell", "gru", "recurrent cells", ("gru", "rnn")),
        Option("rnn", "fused", "one operator for a sequence, or a cell applied step by step", ("fused", "cell")),
        Option("full_size", "off", "recurrent and dense layers of 1,760 instead of 256", ("off", "on")),
        Option("longest", LONGEST, "seconds of an utterance at most; LibriSpeech's longest has 24.5"),
    ),
    fixed_bytes=3 * 4 * PARAMETERS,  # weights, their gradients, momentum; more with --full-size
    sample_bytes=lambda options: sample_bytes(options),
    sample_flops=lambda config, framework: sample_flops(config, framework),
    period=PERIOD,
)


def sample_bytes(options: Options) -> int:
    """Return about what an utterance of the longest duration keeps for the backward pass in fp32."""
    from tbdprof.suite.deep_speech2.architecture import kept_values, width_of  # which brings numpy

    return 4 * 100 * int(options["longest"]) * kept_values(width_of(options), str(options["cell"])) // 2


def sample_flops(config: Config, framework: str) -> float:
    """Return the FLOPs of a training step for each utterance of the synthetic batches, as a framework makes them."""
    from tbdprof.suite.deep_speech2.products import step_flops

    return step_flops(config, framework)
