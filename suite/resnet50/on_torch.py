"""ResNet-50 in PyTorch."""

from torch import Tensor, nn
from torch.nn import functional

from tbdprof.suite.classifier import CLASSES, NORM_EPSILON, NORM_MOMENTUM
from tbdprof.suite.classifier.initial import weights
from tbdprof.suite.classifier.on_torch import Workload, workload
from tbdprof.suite.resnet50.architecture import EXPANSION, FEATURES, STAGES, STEM_WIDTH, Stage, check, layers, strides
from tbdprof.suite.workload import Config, Spec


class Bottleneck(nn.Module):
    """A residual block: a 1×1, a 3×3 and a 1×1 convolution, and a shortcut around them."""

    def __init__(self, inputs: int, width: int, stride: int, variant: str) -> None:
        super().__init__()
        outputs = EXPANSION * width
        first, second = strides(variant, stride)
        self.conv1 = convolution(inputs, width, 1, first)
        self.bn1 = normalization(width)
        self.conv2 = convolution(width, width, 3, second)
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


class ResNet50(nn.Module):
    """Turns images (batch, 3, side, side) into scores of the classes (batch, 1000)."""

    def __init__(self, variant: str = "v1.5") -> None:
        super().__init__()
        self.conv1 = convolution(3, STEM_WIDTH, 7, 2)
        self.bn1 = normalization(STEM_WIDTH)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = blocks(STEM_WIDTH, STAGES[0], variant)
        self.layer2 = blocks(EXPANSION * STAGES[0].width, STAGES[1], variant)
        self.layer3 = blocks(EXPANSION * STAGES[1].width, STAGES[2], variant)
        self.layer4 = blocks(EXPANSION * STAGES[2].width, STAGES[3], variant)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(FEATURES, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores, before any softmax."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: Tensor = self.fc(self.avgpool(x).flatten(1))
        return scores


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that pads by half its kernel."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


def normalization(channels: int) -> nn.BatchNorm2d:
    """Return a batch normalization with the suite's constants."""
    return nn.BatchNorm2d(channels, eps=NORM_EPSILON, momentum=NORM_MOMENTUM)


def blocks(inputs: int, stage: Stage, variant: str) -> nn.Sequential:
    """Return a stage's blocks; the first applies the stride and raises the number of channels."""
    first = Bottleneck(inputs, stage.width, stage.stride, variant)
    outputs = EXPANSION * stage.width
    return nn.Sequential(first, *(Bottleneck(outputs, stage.width, 1, variant) for _ in range(stage.blocks - 1)))


def build(spec: Spec, config: Config) -> Workload:
    """Return ResNet-50 with its initial weights, its optimizer and its batches on the device."""
    check(config)
    model = ResNet50(str(config.options["variant"]))
    return workload(spec, config, model, weights(layers(), config.seed), functional.cross_entropy, (Bottleneck,))
