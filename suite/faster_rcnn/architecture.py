"""Faster R-CNN's layers: shapes and parameters of each, without any framework.

The layers are in the network's order; if a block has a shortcut convolution, it comes last in the block. ResNet's
convolutions have no bias, pad by half their kernel, and are followed by a batch normalization that is never trained.
The other layers have a bias and no batch normalization.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from tbdprof.errors import UsageError
from tbdprof.suite.faster_rcnn.regions import ALIGNED_SIDE, ANCHORS, FOREGROUND_SHARE, map_sides
from tbdprof.suite.workload import Config


@dataclass(frozen=True, slots=True)
class Stage:
    """Bottleneck blocks of one width: the first may halve the sides, and all output `EXPANSION` × width channels."""

    width: int
    blocks: int
    stride: int
    trained: bool = True


CLASSES = 21  # Pascal VOC's 20 and the background, which is class 0
EXPANSION = 4
STEM_WIDTH = 64
POOLING_STRIDE = 2  # of the pooling between the stem and the first stage
STAGES = (Stage(64, 3, 1, trained=False), Stage(128, 4, 2), Stage(256, 23, 2), Stage(512, 3, 2))
SHARED = EXPANSION * STAGES[2].width  # channels of the activations that both networks share
FEATURES = EXPANSION * STAGES[3].width  # per region
PROPOSAL_WIDTH = 512


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution, or a dense layer (kernel 0), with its bias or its batch normalization."""

    name: str
    inputs: int  # channels
    outputs: int
    kernel: int
    part: str  # stem, layer1 to layer4, proposals, heads
    stride: int = 1
    trained: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """The weight's shape: outputs, inputs and, for a convolution, height and width."""
        return (self.outputs, self.inputs, *(self.kernel,) * (2 if self.kernel else 0))

    @property
    def normalized(self) -> bool:
        """Whether a batch normalization follows, in place of a bias."""
        return self.part not in ("proposals", "heads")

    @property
    def weights(self) -> int:
        """The number of values in its weight."""
        return self.outputs * self.inputs * max(self.kernel, 1) ** 2

    @property
    def parameters(self) -> int:
        """Its parameters, trained or not: weight, and bias or the normalization's scale and shift."""
        return self.weights + self.outputs * (2 if self.normalized else 1)

    @property
    def trained_parameters(self) -> int:
        """Its trained parameters."""
        return (self.weights if self.normalized else self.parameters) if self.trained else 0


def layers() -> tuple[Layer, ...]:
    """Return every layer in the network's order."""
    return tuple(_layers())


def places(height: int, width: int, regions: int) -> Iterator[tuple[Layer, int]]:
    """Yield each layer with the number of positions it is applied to on a training image; for heads, the regions."""
    sides, maps = (height, width), 1
    for layer in layers():
        if layer.name == "layer1.0.conv1":
            sides = _strided(sides, POOLING_STRIDE)
        elif layer.name == "layer4.0.conv1":
            sides, maps = (ALIGNED_SIDE, ALIGNED_SIDE), regions
        if "downsample" not in layer.name:  # earlier convolutions of the block have applied the stride already
            sides = _strided(sides, layer.stride)
        yield layer, regions if layer.part == "heads" else maps * sides[0] * sides[1]


def check(config: Config) -> None:
    """Raise UsageError if the network cannot be trained as configured."""
    if config.batch_size != 1:
        raise UsageError(f"faster_rcnn trains on one image at a time: batch size {config.batch_size} cannot be")
    shorter, regions = int(config.options["image_size"]), int(config.options["regions"])
    rows, columns = map_sides(shorter, shorter)
    most = min(
        rows * columns * ANCHORS, *(int(config.options[name]) for name in ("proposals_before", "proposals_after"))
    )
    if regions * FOREGROUND_SHARE < 1:
        raise UsageError(
            f"{regions} regions have no room for a foreground: give --regions {ceil(1 / FOREGROUND_SHARE)}"
        )
    if regions > most:
        raise UsageError(f"{regions} regions cannot be sampled from {most} proposals: give --regions {most} or fewer")


def point_values() -> int:
    """Return how many values training keeps for each position of the shared activations, with in-place ReLU.

    They are the output of the first residual stage (which is not trained), the values of the second and third stage,
    and those of the proposal network.
    """
    handed = EXPANSION * STAGES[0].width * 16
    return handed + _kept("layer2", 4) + _kept("layer3", 1) + PROPOSAL_WIDTH


def region_values() -> int:
    """Return how many values training keeps for each region: its activations, the fifth stage's, and its features."""
    return SHARED * ALIGNED_SIDE**2 + _kept("layer4", ALIGNED_SIDE**2 // 4) + FEATURES


def _kept(part: str, points: int) -> int:
    # Batch normalization keeps its input. Its output, which the in-place ReLU and the next convolution share, is kept
    # too, except after a shortcut: that output is added and freed. Before the stage's stride there are four times as
    # many positions.
    return sum(
        points
        * (4 if layer.name == f"{part}.0.conv1" else 1)
        * layer.outputs
        * (1 if "downsample" in layer.name else 2)
        for layer in layers()
        if layer.part == part
    )


def _strided(sides: tuple[int, int], stride: int) -> tuple[int, int]:
    return ceil(sides[0] / stride), ceil(sides[1] / stride)


def _layers() -> Iterator[Layer]:
    yield Layer("conv1", 3, STEM_WIDTH, 7, "stem", stride=2, trained=False)
    channels = STEM_WIDTH
    for number, stage in enumerate(STAGES[:3], 1):
        yield from _stage(number, channels, stage)
        channels = EXPANSION * stage.width
    yield Layer("proposals.conv", SHARED, PROPOSAL_WIDTH, 3, "proposals")
    yield Layer("proposals.scores", PROPOSAL_WIDTH, 2 * ANCHORS, 1, "proposals")
    yield Layer("proposals.deltas", PROPOSAL_WIDTH, 4 * ANCHORS, 1, "proposals")
    yield from _stage(4, SHARED, STAGES[3])
    yield Layer("scores", FEATURES, CLASSES, 0, "heads")
    yield Layer("deltas", FEATURES, 4 * CLASSES, 0, "heads")


def _stage(number: int, inputs: int, stage: Stage) -> Iterator[Layer]:
    part, outputs = f"layer{number}", EXPANSION * stage.width
    for index in range(stage.blocks):
        name, stride = f"{part}.{index}", stage.stride if index == 0 else 1
        yield Layer(f"{name}.conv1", inputs, stage.width, 1, part, trained=stage.trained)
        yield Layer(f"{name}.conv2", stage.width, stage.width, 3, part, stride, stage.trained)
        yield Layer(f"{name}.conv3", stage.width, outputs, 1, part, trained=stage.trained)
        if index == 0:
            yield Layer(f"{name}.downsample.0", inputs, outputs, 1, part, stride, stage.trained)
        inputs = outputs
