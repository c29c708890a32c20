"""Inception-v3's facts, after Szegedy et al., Rethinking the Inception Architecture, 2016 (arXiv:1512.00567).

The auxiliary classifier takes part in training with weight 0.4, as in the authors' own code. The paper trains with
RMSProp, and with momentum 0.9 in its earlier experiments (section 8). SGD with momentum is this suite's choice in every
framework, at the learning rate of Goyal et al., 2017 (arXiv:1706.02677, section 2.1).
`tbdprof.suite.inception_v3.architecture` holds the layers; the figures here are sums over them.
"""

from tbdprof.suite.inception_v3.architecture import layers, saved_bytes, step_flops
from tbdprof.suite.workload import Option, Spec

_PARAMETERS = sum(layer.parameters for layer in layers())

SPEC = Spec(
    name="inception_v3",
    title="Inception-v3",
    task="image classification",
    dataset="ImageNet1K",
    unit="images",
    sample_unit="images",
    layers="42",
    dominant_layer="convolution",
    parameters=_PARAMETERS,
    default_batch={"cpu": 2, "cuda": 32},
    optimizer="SGD, momentum 0.9, weight decay 1e-4, learning rate 0.1 × batch / 256",
    options=(
        Option("image_size", 299, "height and width of an image in pixels, 299 or more"),
        Option("dropout", "on", "whether half of the features are dropped before the classifier", ("on", "off")),
    ),
    fixed_bytes=3 * 4 * _PARAMETERS,  # weights, their gradients and momentum
    sample_bytes=lambda options: saved_bytes(int(options["image_size"]), options["dropout"] == "on"),
    sample_flops=lambda config, _framework: step_flops(int(config.options["image_size"])),
    switches={
        "torch": ("compile", "channels_last", "fused_optimizer", "checkpointing"),
        "mxnet": ("hybridize",),
        "tensorflow": ("eager",),
    },
)

DROPOUT = 0.5
AUXILIARY_WEIGHT = 0.4  # of the auxiliary classifier's loss
