"""WGAN-GP's facts, after Gulrajani et al., Improved Training of Wasserstein GANs, 2017 (arXiv:1704.00028), appendix C.

The generator and the critic are the paper's residual networks of four blocks for 64×64 pixels. Each has 14 layers: four
blocks of three convolutions, one more convolution and one dense layer. As in the authors' published code, the generator
always normalizes by the statistics of the current batch and keeps no running statistics. The critic's layer
normalization has a scale and a shift for each channel. `tbdprof.suite.wgan.architecture` holds the layers; the figures
here are sums over them.

One training step is five steps of the critic, each on real pictures of its own, and one of the generator. A step
consumes the real pictures, which are five batches, and throughput counts these. A synthetic run keeps one batch and
shows it to the critic each time. By default the batch is the paper's 64 on a GPU, and 2 on a CPU, where a step of 64
would take minutes (`--batch-size`). `--width` makes the networks narrower, for trials where the paper's width of 64
would take too long. Adam's learning rate is then larger in proportion (Yang et al., 2022, arXiv:2203.03466).
"""

from tbdprof.suite.wgan.architecture import WIDTH
from tbdprof.suite.wgan.products import CRITIC_STEPS, step_flops
from tbdprof.suite.workload import Option, Options, Spec

PENALTY = 10.0
NORM_EPSILON = 1e-5
BETAS = (0.0, 0.9)
ADAM_EPSILON = 1e-8


def sample_bytes(options: Options) -> int:
    """Return what torch keeps of a sample when a critic step is about to go backward; the peak is slightly higher.

    Torch saves this in fp32 for the scores of a real, a generated and an interpolated picture. The gradient of the
    last score with respect to its picture is included.
    """
    return 4 * (187_994 * int(options["width"]) + 49_250)


def sample_flops(options: Options, framework: str) -> int:
    """Return a framework's FLOPs of one training step, divided by the number of pictures in a batch."""
    return step_flops(int(options["width"]), int(options["critic_steps"]), framework)


def learning_rate(width: int) -> float:
    """Return the learning rate at a width: 1e-4 at 64 (the paper's), and in inverse proportion at other widths."""
    return 1e-4 * WIDTH / width


SPEC = Spec(
    name="wgan",
    title="WGAN-GP",
    task="image generation",
    dataset="Downsampled ImageNet",
    unit="images",
    sample_unit="samples",
    layers="14+14",
    dominant_layer="convolution",
    parameters=8_540_483 + 7_491_841,  # generator, critic
    default_batch={"cpu": 2, "cuda": 64},
    optimizer="Adam, betas 0 and 0.9, learning rate 1e-4 × 64 / width",
    options=(
        Option("critic_steps", CRITIC_STEPS, "steps of the critic for one of the generator"),
        Option("width", WIDTH, "channels of the maps at 64 pixels; all others are multiples of it"),
    ),
    fixed_bytes=4 * 4 * (8_540_483 + 7_491_841),  # weights, their gradients, Adam's two moments
    sample_bytes=sample_bytes,
    sample_flops=lambda config, framework: sample_flops(config.options, framework),
    switches={
        "torch": ("channels_last", "fused_optimizer", "checkpointing"),
        "mxnet": ("hybridize",),
        "tensorflow": ("eager", "jit"),
    },
)
