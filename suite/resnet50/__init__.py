"""ResNet-50's facts, after He et al., Deep Residual Learning for Image Recognition, 2016 (arXiv:1512.03385).

Variant v1.5 has the stride of a downsampling block in its 3×3 convolution; v1 has it in the first 1×1 convolution, as
in the paper. The initial weights and the rule for the learning rate are those of Goyal et al., 2017 (arXiv:1706.02677),
except that every batch normalization begins with scale 1. `tbdprof.suite.resnet50.architecture` holds the layers; the
figures here are sums over them.
"""

from tbdprof.suite.resnet50.architecture import step_flops
from tbdprof.suite.workload import Option, Options, Spec

SPEC = Spec(
    name="resnet50",
    title="ResNet-50",
    task="image classification",
    dataset="ImageNet1K",
    unit="images",
    sample_unit="images",
    layers="50",
    dominant_layer="convolution",
    parameters=25_503_912 + 53_120,  # convolutions and dense, batch-norm scale and shift
    default_batch={"cpu": 4, "cuda": 32},
    optimizer="SGD, momentum 0.9, weight decay 1e-4, learning rate 0.1 × batch / 256",
    options=(
        Option(
            "variant",
            "v1.5",
            "where a downsampling block has its stride: v1.5 in the 3×3, v1 in the 1×1",
            ("v1.5", "v1"),
        ),
        Option("image_size", 224, "height and width of an image in pixels"),
    ),
    fixed_bytes=3 * 4 * 25_557_032,  # weights, their gradients and momentum
    sample_bytes=lambda options: sample_bytes(int(options["image_size"])),
    sample_flops=lambda config, _framework: sample_flops(config.options),
    switches={
        "torch": ("compile", "channels_last", "fused_optimizer", "checkpointing"),
        "mxnet": ("hybridize",),
        "tensorflow": ("eager", "jit", "checkpointing"),
    },
)


def sample_bytes(image_size: int) -> int:
    """Return about what a sample takes in fp32: activations kept for backward (in-place ReLU), the image and its label.

    The figure is exact at 224 pixels. At other sizes it is in proportion to the image's area.
    """
    return (85_311_392 + 602_112) * image_size**2 // 224**2 + 8


def sample_flops(options: Options) -> int:
    """Return the FLOPs of a training step for each image, the same in every framework."""
    return step_flops(str(options["variant"]), int(options["image_size"]))
