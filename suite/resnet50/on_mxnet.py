"""ResNet-50 in MXNet's Gluon."""

from typing import Any

from mxnet.gluon import nn

from tbdprof.suite.classifier import CLASSES, NORM_EPSILON, NORM_MOMENTUM
from tbdprof.suite.classifier.initial import weights
from tbdprof.suite.classifier.on_mxnet import Workload, mean_cross_entropy, workload
from tbdprof.suite.on_mxnet import check_precision
from tbdprof.suite.resnet50.architecture import EXPANSION, FEATURES, STAGES, STEM_WIDTH, Stage, check, layers, strides
from tbdprof.suite.workload import Config, Spec


class Bottleneck(nn.HybridBlock):  # type: ignore[misc]
    """A residual block: a 1×1, a 3×3 and a 1×1 convolution, and a shortcut around them."""

    def __init__(self, inputs: int, width: int, stride: int, variant: str, **names: Any) -> None:
        super().__init__(**names)
        outputs = EXPANSION * width
        first, second = strides(variant, stride)
        with self.name_scope():
            self.conv1 = convolution(inputs, width, 1, first)
            self.bn1 = normalization(width)
            self.conv2 = convolution(width, width, 3, second)
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


class ResNet50(nn.HybridBlock):  # type: ignore[misc]
    """Turns images (batch, 3, side, side) into scores of the classes (batch, 1000)."""

    def __init__(self, variant: str = "v1.5", **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.conv1 = convolution(3, STEM_WIDTH, 7, 2)
            self.bn1 = normalization(STEM_WIDTH)
            self.relu = nn.Activation("relu")
            self.maxpool = nn.MaxPool2D(3, strides=2, padding=1)
            self.layer1 = blocks(STEM_WIDTH, STAGES[0], variant, prefix="layer1_")
            self.layer2 = blocks(EXPANSION * STAGES[0].width, STAGES[1], variant, prefix="layer2_")
            self.layer3 = blocks(EXPANSION * STAGES[1].width, STAGES[2], variant, prefix="layer3_")
            self.layer4 = blocks(EXPANSION * STAGES[2].width, STAGES[3], variant, prefix="layer4_")
            self.avgpool = nn.GlobalAvgPool2D()
            self.fc = nn.Dense(CLASSES, in_units=FEATURES)  # flattens its input

    def hybrid_forward(self, F: Any, images: Any) -> Any:  # noqa: N803
        """Return the scores, before any softmax."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x))


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2D:
    """Return a convolution without bias that pads by half its kernel."""
    return nn.Conv2D(outputs, kernel, stride, padding=kernel // 2, use_bias=False, in_channels=inputs)


def normalization(channels: int) -> nn.BatchNorm:
    """Return a batch normalization with the suite's constants; MXNet's momentum is the weight of the old statistics."""
    return nn.BatchNorm(epsilon=NORM_EPSILON, momentum=1 - NORM_MOMENTUM, in_channels=channels)


def blocks(inputs: int, stage: Stage, variant: str, prefix: str) -> nn.HybridSequential:
    """Return a stage's blocks; the first applies the stride and raises the number of channels."""
    stack = nn.HybridSequential(prefix=prefix)
    with stack.name_scope():
        stack.add(Bottleneck(inputs, stage.width, stage.stride, variant))
        for _ in range(stage.blocks - 1):
            stack.add(Bottleneck(EXPANSION * stage.width, stage.width, 1, variant))
    return stack


def build(spec: Spec, config: Config) -> Workload:
    """Return ResNet-50 with its initial weights, its optimizer and its batches on the device."""
    check(config)
    check_precision(spec, config)
    model = ResNet50(str(config.options["variant"]))
    return workload(spec, config, model, weights(layers(), config.seed), mean_cross_entropy())
