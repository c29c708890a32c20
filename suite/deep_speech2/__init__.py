"""Deep Speech 2's facts, after Amodei et al., 2015 (arXiv:1512.02595), in the configuration of the TBD paper.

That configuration is MXNet's `example/speech_recognition` with its `deepspeech.cfg`. It has two convolutions over a
spectrogram of 161 bins (41×11 with stride 2×2, 21×11 with stride 2×1, frequency × time, 32 filters each). Five
bidirectional recurrent layers of width 1,760 and a dense layer of width 1,760 follow. There are 29 symbols, and the
loss is CTC. It trains by SGD with momentum 0.9 and learning rate 3e-4. The default is `--cell gru`, because that
configuration has GRU cells; the text of the TBD paper (arXiv:1803.06905) says regular recurrent cells, which is `--cell
rnn`. The default width here is 256, so that CPUs can run it; `--full-size` selects the paper's width.

Choices that the papers leave open, the same in every framework:
- Convolutions have no bias, because batch normalization and the clipped ReLU (0 to 20) follow each. They pad by half
  their kernel.
- The outputs of both directions are summed. Batch normalization follows the sum, so it comes before the next layer's
  matmul with its inputs. Amodei et al. (section 3.2) normalize the result of that matmul. A fused operator computes the
  matmul internally, so deepspeech.pytorch places the normalization as we do.
- Batch normalization is sequence-wise: its statistics cover all frames of all utterances of a batch, without padding.
  The frames are packed for it, without padding, and the padding is zero again afterwards. So the result of an utterance
  does not depend on how far it was padded.
- A GRU applies its reset gate after the matmul (the fused kind; `reset_after` in Keras), so that both of its biases
  matter. The plain cell uses tanh, as the fused operators do, and has one bias. No fused operator has a clipped ReLU,
  and values of an unclipped ReLU may grow over hundreds of steps.
- The dense layer has a bias and the clipped ReLU; the output layer has a bias. Initial weights are uniform between
  ±1 / √(fan-in), in recurrent layers ±1 / √(width); biases begin with 0.
- Gradients are clipped at a norm of 400 (Amodei et al., section 3; also deepspeech.pytorch's default). The loss is the
  mean of the utterances' CTC losses. The blank is symbol 0 in all frameworks, and transcripts are padded with it:
  torch's default, MXNet's `blank_label="first"`, TensorFlow's `blank_index=0`.

The plain cells of torch and MXNet have a second bias, which stays zero and is not trained. It adds
`architecture.redundant_biases` values.

`--rnn fused` uses the framework's own operator for a sequence, `--rnn cell` applies a cell step by step.
- torch: fused is `nn.GRU` over a packed sequence, which on a CPU is a loop of smaller operators inside it; cell is
  `nn.GRUCell`.
- MXNet: fused is one `RNN` operator for each direction; the sequences are reversed before and after the one that runs
  backward in time. The option `use_sequence_length` is not used: on a CPU MXNet 1.9.1 silently ignores it in float32
  and refuses it in float64. Cell is `GRUCell.unroll`.
- Keras: fused is `GRU`, which uses cuDNN on a GPU. On a CPU there is no such operator, and it is a loop in the graph,
  as `RNN(GRUCell)` is on every device; so on a CPU both kinds compute the same. `SimpleRNN` is that loop on every
  device.

Throughput counts seconds of audio, and in addition utterances. Padding is reported in seconds, and lengths in frames of
10 ms, padding included. Synthetic utterances have the durations of LibriSpeech's train-clean-100 (`utterances`), scaled
so that the longest possible utterance lasts `--longest` seconds; 24.5 would be the true scale. From a data set, longer
utterances are left out (the reference configuration leaves out those above 16 s). Four synthetic batches are made and
reused, one for each quarter of the durations; the utterances of a batch have about the same duration.

`tbdprof.suite.deep_speech2.architecture` holds the layers; the figures here are sums over them.
"""

from tbdprof.suite.workload import PERIOD, Config, Option, Options, Spec

CLIP = 20.0  # upper limit of the ReLU
NORM_EPSILON = 1e-5
NORM_MOMENTUM = 0.1
LEARNING_RATE = 3e-4
MOMENTUM = 0.9
LARGEST_NORM = 400.0
LONGEST = 2  # seconds of the longest utterance on a CPU

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
    parameters=PARAMETERS,  # with the default width; 184,649,853 with --full-size
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
    switches={
        "torch": ("fused_optimizer",),
        "mxnet": ("hybridize",),
        "tensorflow": ("eager",),
    },
)


def sample_bytes(options: Options) -> int:
    """Return about how many bytes an utterance of the longest duration keeps for the backward pass in fp32."""
    from tbdprof.suite.deep_speech2.architecture import kept_values, width_of  # imports numpy

    return 4 * 100 * int(options["longest"]) * kept_values(width_of(options), str(options["cell"])) // 2


def sample_flops(config: Config, framework: str) -> float:
    """Return the FLOPs that a framework computes per utterance in a training step on the synthetic batches."""
    from tbdprof.suite.deep_speech2.products import step_flops

    return step_flops(config, framework)
