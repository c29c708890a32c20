"""Faster R-CNN's facts, after Ren et al., 2015 (arXiv:1506.01497), on ResNet-101 (He et al., 2016, arXiv:1512.03385).

The proposal network and the detection network share ResNet-101's first four stages; the fifth stage runs on each
region. A downsampling block has its stride in the 3×3 convolution, as in our ResNet-50 v1.5. The statistics, scale and
shift of batch normalization are fixed (He et al., appendix A), and the first convolution and the first residual stage
are not trained. Both networks are trained in one step, in which proposals are constants (Ren et al., section 3.2,
"approximate joint training").

The main difference from the paper: there the shared stages are pretrained on ImageNet. Here nothing is downloaded, so
all weights are drawn at random. The frozen parts (the first convolution and stage, every statistic, scale and shift)
keep their random values. A step computes and holds the same as in the paper, but learns less.

Other differences:
- Regions are cut out by ROIAlign (He et al., 2017, arXiv:1703.06870).
- Anchors that cross the image's boundary are trained on (as in Lin et al., 2017, arXiv:1612.03144, section 4.1),
  because in a small image every anchor crosses it.
- No proposal is dropped for being small; clipping leaves it at least one pixel.
- Images have 300 pixels on the shorter side by default, so that CPUs can run them. `--image-size 600` selects the
  paper's 600 pixels, with at most 1,000 on the longer side.
- Weight decay applies to all trained parameters, including biases, and all have one learning rate (the authors' code
  doubles that of biases).
- Every region that overlaps no object by half may be sampled as background, as in the authors' joint training.
- A loss is the mean over the sampled anchors or regions.

`tbdprof.suite.faster_rcnn.architecture` holds the layers; the figures here are sums over them.
"""

from tbdprof.suite.faster_rcnn.products import step_flops
from tbdprof.suite.faster_rcnn.regions import image_sides, map_sides
from tbdprof.suite.workload import Option, Options, Spec

NORM_EPSILON = 1e-5
LEARNING_RATE = 1e-3  # Ren et al., section 3.1.3, as are momentum and weight decay
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4

TRAINED = 47_134_367
FROZEN = 327_744  # first convolution and stage: 222,400; scales and shifts of all normalizations: 105,344
PARAMETERS = TRAINED + FROZEN

# Numbers of values that training keeps for the backward pass: for each position of the shared activations, and for each
# region. They are sums over the layers; see `architecture.point_values` and `region_values`.
POINT_VALUES = 107_520
REGION_VALUES = 1_356_800

SPEC = Spec(
    name="faster_rcnn",
    title="Faster R-CNN",
    task="object detection",
    dataset="Pascal VOC 2007",
    unit="images",
    sample_unit="images",
    layers="101",
    dominant_layer="convolution",
    parameters=TRAINED,  # the network has 47,462,111
    default_batch={"cpu": 1, "cuda": 1},
    optimizer="SGD, momentum 0.9, weight decay 5e-4, learning rate 1e-3",
    options=(
        Option("image_size", 300, "an image's shorter side in pixels; the paper's is 600"),
        Option("proposals_before", 12_000, "proposals before suppression, at most"),
        Option("proposals_after", 2_000, "proposals after suppression, at most"),
        Option("regions", 128, "regions sampled from the proposals"),
    ),
    fixed_bytes=4 * (PARAMETERS + 2 * TRAINED),  # weights, and gradients and momentum of the trained weights
    sample_bytes=lambda options: sample_bytes(options),
    sample_flops=lambda config, framework: sample_flops(config.options, framework),
    switches={
        "torch": ("channels_last", "fused_optimizer"),
        "mxnet": ("hybridize",),
        "tensorflow": ("eager",),
    },
)


def sample_bytes(options: Options) -> int:
    """Return about how many bytes a synthetic image takes in fp32: its activations kept for backward, and the image."""
    height, width = image_sides(int(options["image_size"]))
    rows, columns = map_sides(height, width)
    return 4 * (rows * columns * POINT_VALUES + int(options["regions"]) * REGION_VALUES + 3 * height * width)


def sample_flops(options: Options, framework: str) -> int:
    """Return the FLOPs that a framework computes in a training step on a synthetic image."""
    return step_flops(options, framework)
