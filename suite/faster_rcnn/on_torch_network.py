"""The layers of Faster R-CNN in PyTorch."""

from dataclasses import dataclass

from torch import Tensor, nn

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
from tbdprof.suite.faster_rcnn.on_torch_regions import Proposals, Sample, align, propose, sample
from tbdprof.suite.faster_rcnn.regions import ANCHORS


class Bottleneck(nn.Module):
    """A residual block: a 1×1, a 3×3 and a 1×1 convolution, and a shortcut around them."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.conv1 = convolution(inputs, width, 1)
        self.bn1 = normalization(width)
        self.conv2 = convolution(width, width, 3, stride)
        self.bn2 = normalization(width)
        self.conv3 = convolution(width, outputs, 1)
        self.bn3 = normalization(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if inputs != outputs:
            self.downsample = nn.Sequential(convolution(inputs, outputs, 1, stride), normalization(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += shortcut
        outputs: Tensor = self.relu(x)
        return outputs


class ProposalNetwork(nn.Module):
    """Turns shared activations into two scores, (anchors, 2), and four deltas, (anchors, 4), of each anchor."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(SHARED, PROPOSAL_WIDTH, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.scores = nn.Conv2d(PROPOSAL_WIDTH, 2 * ANCHORS, 1)
        self.deltas = nn.Conv2d(PROPOSAL_WIDTH, 4 * ANCHORS, 1)

    def forward(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores (for no object and for an object) and deltas, in the anchors' order."""
        x = self.relu(self.conv(maps))
        return self.scores(x).permute(0, 2, 3, 1).reshape(-1, 2), self.deltas(x).permute(0, 2, 3, 1).reshape(-1, 4)


@dataclass(frozen=True, slots=True)
class Outputs:
    """The network's outputs in training: for an image's anchors, and for the regions sampled from its proposals."""

    anchor_scores: Tensor  # (anchors, 2)
    anchor_deltas: Tensor  # (anchors, 4)
    sample: Sample
    scores: Tensor  # (regions, 21)
    deltas: Tensor  # (regions, 84)


class FasterRCNN(nn.Module):
    """Computes an image's shared activations, its proposals, and the scores and deltas of regions.

    `before` and `after` are the largest numbers of proposals before and after suppression; `regions` is the number of
    sampled regions.
    """

    def __init__(self, before: int, after: int, regions: int) -> None:
        super().__init__()
        self.before, self.after, self.regions = before, after, regions
        self.conv1 = convolution(3, STEM_WIDTH, 7, 2)
        self.bn1 = normalization(STEM_WIDTH)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = blocks(STEM_WIDTH, STAGES[0])
        self.layer2 = blocks(EXPANSION * STAGES[0].width, STAGES[1])
        self.layer3 = blocks(EXPANSION * STAGES[1].width, STAGES[2])
        self.proposals = ProposalNetwork()
        self.layer4 = blocks(SHARED, STAGES[3])
        self.scores = nn.Linear(FEATURES, CLASSES)
        self.deltas = nn.Linear(FEATURES, 4 * CLASSES)
        self.conv1.requires_grad_(requires_grad=False)
        self.layer1.requires_grad_(requires_grad=False)

    def forward(self, images: Tensor, anchors: Tensor, boxes: Tensor, labels: Tensor, priorities: Tensor) -> Outputs:
        """Return the outputs for training; `tbdprof.suite.faster_rcnn.targets.Example` describes the arguments."""
        maps = self.maps(images)
        anchor_scores, anchor_deltas = self.proposals(maps)
        size = (images.shape[2], images.shape[3])
        proposals = propose(anchor_scores, anchor_deltas, anchors, size, self.before, self.after)
        regions = sample(proposals, boxes, labels, priorities, self.regions)
        return Outputs(anchor_scores, anchor_deltas, regions, *self.detect(maps, regions.regions))

    def proposed(self, images: Tensor, anchors: Tensor, before: int, after: int) -> tuple[Tensor, Proposals]:
        """Return an image's shared activations and its proposals."""
        maps = self.maps(images)
        scores, deltas = self.proposals(maps)
        return maps, propose(scores, deltas, anchors, (images.shape[2], images.shape[3]), before, after)

    def maps(self, images: Tensor) -> Tensor:
        """Return the activations that both networks share, (1, 1024, rows, columns)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        maps: Tensor = self.layer3(self.layer2(self.layer1(x)))
        return maps

    def detect(self, maps: Tensor, regions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of the classes, (regions, 21), and the deltas for each class, (regions, 84)."""
        features = self.layer4(align(maps, regions)).mean((2, 3))
        return self.scores(features), self.deltas(features)

    def train(self, mode: bool = True) -> "FasterRCNN":
        """Set the mode, except that batch normalization always uses its fixed statistics."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that pads by half its kernel."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


def normalization(channels: int) -> nn.BatchNorm2d:
    """Return a batch normalization that is not trained."""
    return nn.BatchNorm2d(channels, eps=NORM_EPSILON).requires_grad_(requires_grad=False).eval()


def blocks(inputs: int, stage: Stage) -> nn.Sequential:
    """Return a stage's blocks; the first applies the stride and raises the number of channels."""
    first = Bottleneck(inputs, stage.width, stage.stride)
    outputs = EXPANSION * stage.width
    return nn.Sequential(first, *(Bottleneck(outputs, stage.width, 1) for _ in range(stage.blocks - 1)))
