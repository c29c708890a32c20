"""What one training step computes: how often each layer's product is made, and the FLOPs of all.

A layer's product is as many multiply-accumulates in each of these: its output, its input's gradient and its weight's.
Layers that are not trained make the first alone, and the first ones that are make no gradient of what those hand them.
The fifth stage and the heads are run on every sampled region, those of weight 0 too, to which a loss of zero goes back.
Decoding, overlaps, suppression, sampling and both losses have no products.
"""

from collections.abc import Callable, Mapping

from tbdprof.suite.faster_rcnn.architecture import SHARED, Layer, places
from tbdprof.suite.faster_rcnn.regions import ALIGNED_SIDE, image_sides, map_sides
from tbdprof.suite.workload import Options

_HANDED_FROZEN_MAPS = ("layer2.0.conv1", "layer2.0.downsample.0")


def _columns_first(rows: int, columns: int) -> int:
    """Every row's points become 14 of a region, then each of these columns' points become 14."""
    return SHARED * ALIGNED_SIDE * rows * (columns + ALIGNED_SIDE)


def _rows_first(rows: int, columns: int) -> int:
    return _columns_first(columns, rows)


# What a framework makes besides: the multiply-accumulates with which a region is cut out of maps of rows × columns
# points. They are made forward and, for the maps' gradient, backward; a region's own place has no gradient.
DEVIATIONS: Mapping[str, Callable[[int, int], int]] = {
    # Both interpolate by products with a matrix for each axis, the one along the columns first, the other the rows.
    "torch": _columns_first,
    "tensorflow": _rows_first,
    # Its ROIAlign is one operator, without products.
    "mxnet": lambda _rows, _columns: 0,
}


def products(layer: Layer) -> int:
    """Return how often a layer is multiplied in one step."""
    if not layer.trained:
        return 1
    return 2 if layer.name in _HANDED_FROZEN_MAPS else 3


def step_flops(options: Options, framework: str | None = None) -> int:
    """Return the FLOPs of one training step on a synthetic image, as a framework makes them."""
    sides, regions = image_sides(int(options["image_size"])), int(options["regions"])
    of_layers = sum(products(layer) * layer.weights * laid for layer, laid in places(*sides, regions))
    cutting_out = 0 if framework is None else DEVIATIONS[framework](*map_sides(*sides))
    return 2 * (of_layers + 2 * regions * cutting_out)
