"""The layers of Faster R-CNN in MXNet's Gluon."""

from typing import Any, NamedTuple

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn

from tbdprof.suite.faster_rcnn import NORM_EPSILON
from tbdprof.suite.faster_rcnn.architecture import (
    CLASSES,
    EXPANSION,
    FEATURES,
    PROPOSAL_WIDTH,
    SHARED,
    STAGES,
    STEM_WIDTH,
    Stage,
)
from tbdprof.suite.faster_rcnn.on_mxnet_regions import Proposals, Sample, align, propose, sample
from tbdprof.suite.faster_rcnn.regions import ANCHORS


class Bottleneck(nn.HybridBlock):  # type: ignore[misc]
    """A residual block: a 1×1, a 3×3 and a 1×1 convolution, and a shortcut around them."""

    def __init__(self, inputs: int, width: int, stride: int, **names: Any) -> None:
        super().__init__(**names)
        outputs = EXPANSION * width
        with self.name_scope():
            self.conv1 = convolution(inputs, width, 1)
            self.bn1 = normalization(width)
            self.conv2 = convolution(width, width, 3, stride)
            self.bn2 = normalization(width)
            self.conv3 = convolution(width, outputs, 1)
            self.bn3 = normalization(outputs)
            self.relu = nn.Activation("relu")
            self.downsample = None
            if inputs != outputs:
                self.downsample = nn.HybridSequential(prefix="downsample_")
                with self.downsample.name_scope():
                    self.downsample.add(convolution(inputs, outputs, 1, stride), normalization(outputs))

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        """Return the block's output."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        return self.relu(x + shortcut)


class ProposalNetwork(nn.HybridBlock):  # type: ignore[misc]
    """Turns shared activations into two scores, (anchors, 2), and four deltas, (anchors, 4), of each anchor."""

    def __init__(self, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.conv = nn.Conv2D(PROPOSAL_WIDTH, 3, padding=1, in_channels=SHARED)
            self.relu = nn.Activation("relu")
            self.scores = nn.Conv2D(2 * ANCHORS, 1, in_channels=PROPOSAL_WIDTH)
            self.deltas = nn.Conv2D(4 * ANCHORS, 1, in_channels=PROPOSAL_WIDTH)

    def hybrid_forward(self, F: Any, maps: Any) -> Any:  # noqa: N803
        """Return scores (for no object and for an object) and deltas, in the anchors' order."""
        x = self.relu(self.conv(maps))
        scores, deltas = (F.transpose(values, (0, 2, 3, 1)) for values in (self.scores(x), self.deltas(x)))
        return F.reshape(scores, (-1, 2)), F.reshape(deltas, (-1, 4))


class Outputs(NamedTuple):
    """The network's outputs in training: for an image's anchors, and for the regions sampled from its proposals."""

    anchor_scores: mx.nd.NDArray  # (anchors, 2)
    anchor_deltas: mx.nd.NDArray  # (anchors, 4)
    sample: Sample
    scores: mx.nd.NDArray  # (regions, 21)
    deltas: mx.nd.NDArray  # (regions, 84)


class FasterRCNN(gluon.Block):  # type: ignore[misc]
    """Computes an image's shared activations, its proposals, and the scores and deltas of regions.

    `before` and `after` are the largest numbers of proposals before and after suppression; `regions` is the number of
    sampled regions. The layers may be hybridized; the code between them needs shapes and is not hybridized.
    """

    def __init__(self, before: int, after: int, regions: int, **names: Any) -> None:
        super().__init__(**names)
        self.before, self.after, self.regions = before, after, regions
        with self.name_scope():
            self.conv1 = convolution(3, STEM_WIDTH, 7, 2)
            self.bn1 = normalization(STEM_WIDTH)
            self.relu = nn.Activation("relu")
            self.maxpool = nn.MaxPool2D(3, strides=2, padding=1)
            self.layer1 = blocks(STEM_WIDTH, STAGES[0], prefix="layer1_")
            self.layer2 = blocks(EXPANSION * STAGES[0].width, STAGES[1], prefix="layer2_")
            self.layer3 = blocks(EXPANSION * STAGES[1].width, STAGES[2], prefix="layer3_")
            self.proposals = ProposalNetwork(prefix="proposals_")
            self.layer4 = blocks(SHARED, STAGES[3], prefix="layer4_")
            self.avgpool = nn.GlobalAvgPool2D()
            self.scores = nn.Dense(CLASSES, in_units=FEATURES)  # flattens its input
            self.deltas = nn.Dense(4 * CLASSES, in_units=FEATURES)
        for frozen in (self.conv1, self.layer1):
            frozen.collect_params().setattr("grad_req", "null")
        self.collect_params(".*(gamma|beta)$").setattr("grad_req", "null")

    def forward(
        self,
        images: mx.nd.NDArray,
        anchors: mx.nd.NDArray,
        boxes: mx.nd.NDArray,
        labels: mx.nd.NDArray,
        priorities: mx.nd.NDArray,
    ) -> Outputs:
        """Return the outputs for training; `tbdprof.suite.faster_rcnn.targets.Example` describes the arguments."""
        maps = self.maps(images)
        anchor_scores, anchor_deltas = self.proposals(maps)
        with autograd.pause():
            proposals = propose(anchor_scores, anchor_deltas, anchors, images.shape[2:], self.before, self.after)
            regions = sample(proposals, boxes, labels, priorities, self.regions)
        return Outputs(anchor_scores, anchor_deltas, regions, *self.detect(maps, regions.regions))

    def proposed(
        self, images: mx.nd.NDArray, anchors: mx.nd.NDArray, before: int, after: int
    ) -> tuple[mx.nd.NDArray, Proposals]:
        """Return an image's shared activations and its proposals."""
        maps = self.maps(images)
        scores, deltas = self.proposals(maps)
        return maps, propose(scores, deltas, anchors, images.shape[2:], before, after)

    def maps(self, images: mx.nd.NDArray) -> mx.nd.NDArray:
        """Return the activations that both networks share, (1, 1024, rows, columns)."""
        with autograd.pause():  # no layer before this point is trained
            x = self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(images)))))
        return self.layer3(self.layer2(x))

    def detect(self, maps: mx.nd.NDArray, regions: mx.nd.NDArray) -> tuple[mx.nd.NDArray, mx.nd.NDArray]:
        """Return the scores of the classes, (regions, 21), and the deltas for each class, (regions, 84)."""
        features = self.avgpool(self.layer4(align(maps, regions)))
        return self.scores(features), self.deltas(features)


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2D:
    """Return a convolution without bias that pads by half its kernel."""
    return nn.Conv2D(outputs, kernel, stride, padding=kernel // 2, use_bias=False, in_channels=inputs)


def normalization(channels: int) -> nn.BatchNorm:
    """Return a batch normalization that always uses its fixed statistics."""
    return nn.BatchNorm(epsilon=NORM_EPSILON, use_global_stats=True, in_channels=channels)


def blocks(inputs: int, stage: Stage, prefix: str) -> nn.HybridSequential:
    """Return a stage's blocks; the first applies the stride and raises the number of channels."""
    stack = nn.HybridSequential(prefix=prefix)
    with stack.name_scope():
        stack.add(Bottleneck(inputs, stage.width, stage.stride))
        for _ in range(stage.blocks - 1):
            stack.add(Bottleneck(EXPANSION * stage.width, stage.width, 1))
    return stack
