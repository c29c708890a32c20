"""Faster R-CNN's facts, after Ren et al., 2015 (arXiv:1506.01497), on ResNet-101 (He et al., 2016, arXiv:1512.03385).

ResNet-101's first four stages are shared by the proposal network and the detection network; its fifth is run on each
region. A downsampling block has its stride in the 3×3 convolution, as ResNet-50 v1.5 here. Batch normalization keeps
its statistics, scale and shift (He et al., appendix A), and the first convolution and the first residual stage are
not trained. Both networks are trained in one step, in which proposals are constants (Ren et al., section 3.2,
"approximate joint training").

What differs from the paper, most of all: there the shared stages come trained on ImageNet. Nothing is downloaded here,
so that all weights are drawn at random, and what is frozen (the first convolution and stage, every statistic, scale and
shift) stays as it was drawn: what a step computes and holds is the same, what it learns is less.

Also: regions are cut out by ROIAlign (He et al., 2017, arXiv:1703.06870); anchors that cross the image's boundary are
trained on (as in Lin et al., 2017, arXiv:1612.03144, section 4.1), because in a small image every anchor does; no
proposal is dropped for being small, but clipping leaves it a pixel; images are 300 pixels on the shorter side by
default, for the sake of CPUs: the paper's 600, and 1,000 at most on the longer, are `--image-size 600`. All that is
trained decays, biases too, and at one learning rate (the authors' code doubles that of biases). Every region that
overlaps no object by half may be sampled as background, as in the authors' joint training. A loss is the mean over
what was sampled.

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
FROZEN = 327_744  # the first convolution and stage 222,400, every batch normalization's scale and shift 105,344
PARAMETERS = TRAINED + FROZEN

# What training keeps for the backward pass: values for each point of the shared maps, and for each region. They are
# sums over the layers; see `architecture.point_values` and `region_values`.
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
    fixed_bytes=4 * (PARAMETERS + 2 * TRAINED),  # weights, and the trained ones' gradients and momentum
    sample_bytes=lambda options: sample_bytes(options),
    sample_flops=lambda config, framework: sample_flops(config.options, framework),
)


def sample_bytes(options: Options) -> int:
    """Return about what a synthetic image takes in fp32: maps kept for the backward pass, and the image."""
    height, width = image_sides(int(options["image_size"]))
    rows, columns = map_sides(height, width)
    return 4 * (rows * columns * POINT_VALUES + int(options["regions"]) * REGION_VALUES + 3 * height * width)


def sample_flops(options: Options, framework: str) -> int:
    """Return the FLOPs of a training step on a synthetic image, as a framework makes them."""
    return step_flops(options, framework)
