"""The FLOP count of one training step: the matmuls and convolutions of each layer, summed.

A layer takes the same number of multiply-accumulates for its output, its input's gradient and its weight's gradient.
Layers that are not trained compute only their output, and the first trained layers compute no gradient of their input,
which comes from untrained layers. The fifth stage and the heads run forward and backward on every sampled region,
including regions of weight 0, which have a loss of zero. Decoding, overlaps, suppression, sampling and both losses have
neither matmuls nor convolutions.
"""

from collections.abc import Callable, Mapping

from tbdprof.suite.faster_rcnn.architecture import SHARED, Layer, places
from tbdprof.suite.faster_rcnn.regions import ALIGNED_SIDE, image_sides, map_sides
from tbdprof.suite.workload import Options

_HANDED_FROZEN_MAPS = ("layer2.0.conv1", "layer2.0.downsample.0")


def _columns_first(rows: int, columns: int) -> int:
    """Return the multiply-accumulates to cut out one region: each row becomes 14 positions, then each column."""
    return SHARED * ALIGNED_SIDE * rows * (columns + ALIGNED_SIDE)


def _rows_first(rows: int, columns: int) -> int:
    return _columns_first(columns, rows)


# What a framework computes in addition: the multiply-accumulates that cut a region out of activations of rows × columns
# positions. They occur forward and, for the gradient of the activations, backward; a region's box has no gradient.
DEVIATIONS: Mapping[str, Callable[[int, int], int]] = {
    # Both interpolate by a matmul along each axis: torch along the columns first, TensorFlow along the rows.
    "torch": _columns_first,
    "tensorflow": _rows_first,
    # MXNet's ROIAlign is one operator, without a matmul.
    "mxnet": lambda _rows, _columns: 0,
}


def products(layer: Layer) -> int:
    """Return how many matmuls or convolutions a layer takes in one step."""
    if not layer.trained:
        return 1
    return 2 if layer.name in _HANDED_FROZEN_MAPS else 3


def step_flops(options: Options, framework: str | None = None) -> int:
    """Return the FLOPs that a framework computes in one training step on a synthetic image."""
    sides, regions = image_sides(int(options["image_size"])), int(options["regions"])
    of_layers = sum(products(layer) * layer.weights * laid for layer, laid in places(*sides, regions))
    cutting_out = 0 if framework is None else DEVIATIONS[framework](*map_sides(*sides))
    return 2 * (of_layers + 2 * regions * cutting_out)
