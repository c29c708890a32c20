"""ResNet-50 in TensorFlow's Keras: channels are last, and each training step is one traced function."""

import tensorflow as tf
from tensorflow import keras

from tbdprof.suite.classifier import CLASSES, NORM_EPSILON, NORM_MOMENTUM
from tbdprof.suite.classifier.initial import weights
from tbdprof.suite.classifier.on_tensorflow import Workload, mean_cross_entropy, workload
from tbdprof.suite.on_tensorflow import checkpoint, device_of, policy_of
from tbdprof.suite.resnet50.architecture import EXPANSION, STAGES, STEM_WIDTH, Stage, check, layers, strides
from tbdprof.suite.workload import Config, Spec


class Bottleneck(keras.layers.Layer):  # type: ignore[misc]
    """A residual block: a 1×1, a 3×3 and a 1×1 convolution, and a shortcut around them."""

    def __init__(self, inputs: int, width: int, stride: int, variant: str, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        outputs = EXPANSION * width
        first, second = strides(variant, stride)
        self.conv1 = convolution("conv1", width, 1, dtype, first)
        self.bn1 = normalization("bn1", dtype)
        self.conv2 = convolution("conv2", width, 3, dtype, second)
        self.bn2 = normalization("bn2", dtype)
        self.conv3 = convolution("conv3", outputs, 1, dtype)
        self.bn3 = normalization("bn3", dtype)
        self.relu = keras.layers.ReLU(name="relu", dtype=dtype)
        self.pad = keras.layers.ZeroPadding2D(1, name="pad", dtype=dtype) if second > 1 else None
        self.downsample = None
        if inputs != outputs:
            shortcut = [convolution("0", outputs, 1, dtype, stride), normalization("1", dtype)]
            self.downsample = keras.Sequential(shortcut, name="downsample")

    def build(self, _shape: object) -> None:
        """Build nothing: each inner layer builds itself when called. Keras would run all of them to find shapes."""

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the block's output."""
        shortcut = x if self.downsample is None else self.downsample(x, training=training)
        x = self.relu(self.bn1(self.conv1(x), training=training))
        x = x if self.pad is None else self.pad(x)
        x = self.relu(self.bn2(self.conv2(x), training=training))
        x = self.bn3(self.conv3(x), training=training)
        return self.relu(x + shortcut)


class ResNet50(keras.Model):  # type: ignore[misc]
    """Turns images (batch, side, side, 3) into scores of the classes (batch, 1000)."""

    def __init__(self, variant: str = "v1.5", dtype: str = "float32") -> None:
        super().__init__(name="resnet50", dtype=dtype)
        self.pad = keras.layers.ZeroPadding2D(3, name="pad", dtype=dtype)
        self.conv1 = convolution("conv1", STEM_WIDTH, 7, dtype, 2)
        self.bn1 = normalization("bn1", dtype)
        self.relu = keras.layers.ReLU(name="relu", dtype=dtype)
        # Padding with zeros does not change the maximum of a ReLU's outputs.
        self.maxpool_pad = keras.layers.ZeroPadding2D(1, name="maxpool_pad", dtype=dtype)
        self.maxpool = keras.layers.MaxPooling2D(3, strides=2, name="maxpool", dtype=dtype)
        self.layer1 = blocks("layer1", STEM_WIDTH, STAGES[0], variant, dtype)
        self.layer2 = blocks("layer2", EXPANSION * STAGES[0].width, STAGES[1], variant, dtype)
        self.layer3 = blocks("layer3", EXPANSION * STAGES[1].width, STAGES[2], variant, dtype)
        self.layer4 = blocks("layer4", EXPANSION * STAGES[2].width, STAGES[3], variant, dtype)
        self.avgpool = keras.layers.GlobalAveragePooling2D(name="avgpool", dtype=dtype)
        self.fc = keras.layers.Dense(CLASSES, kernel_initializer="zeros", name="fc", dtype=dtype)

    def call(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the scores, before any softmax."""
        x = self.relu(self.bn1(self.conv1(self.pad(images)), training=training))
        x = self.maxpool(self.maxpool_pad(x))
        x = self.layer2(self.layer1(x, training=training), training=training)
        x = self.layer4(self.layer3(x, training=training), training=training)
        return self.fc(self.avgpool(x))


def convolution(name: str, outputs: int, kernel: int, dtype: str, stride: int = 1) -> keras.layers.Conv2D:
    """Return a convolution without bias that pads by half its kernel, or does not pad if it has a stride.

    With a stride, Keras' "same" pads one side more than the other; so a layer before it pads the activations.
    """
    padding = "same" if stride == 1 else "valid"
    return keras.layers.Conv2D(
        outputs, kernel, stride, padding, use_bias=False, kernel_initializer="zeros", name=name, dtype=dtype
    )


def normalization(name: str, dtype: str) -> keras.layers.BatchNormalization:
    """Return a batch normalization with the suite's constants; Keras' momentum is the weight of the old statistics."""
    return keras.layers.BatchNormalization(epsilon=NORM_EPSILON, momentum=1 - NORM_MOMENTUM, name=name, dtype=dtype)


def blocks(name: str, inputs: int, stage: Stage, variant: str, dtype: str) -> keras.Sequential:
    """Return a stage's blocks; the first applies the stride and raises the number of channels."""
    first = Bottleneck(inputs, stage.width, stage.stride, variant, name="0", dtype=dtype)
    outputs = EXPANSION * stage.width
    others = (
        Bottleneck(outputs, stage.width, 1, variant, name=str(index), dtype=dtype) for index in range(1, stage.blocks)
    )
    return keras.Sequential([first, *others], name=name)


def build(spec: Spec, config: Config) -> Workload:
    """Return ResNet-50 with its initial weights, its optimizer and its batches on the device."""
    check(config)
    with tf.device(device_of(config)):
        model = ResNet50(str(config.options["variant"]), policy_of(config))
    made = workload(spec, config, model, weights(layers(), config.seed), mean_cross_entropy)
    checkpoint(
        (block for stage in (model.layer1, model.layer2, model.layer3, model.layer4) for block in stage.layers), config
    )
    return made
