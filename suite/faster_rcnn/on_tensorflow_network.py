"""The layers of Faster R-CNN in TensorFlow's Keras: channels last."""

from typing import NamedTuple

import tensorflow as tf
from tensorflow import keras

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
from tbdprof.suite.faster_rcnn.on_tensorflow_regions import Proposals, Sample, align, propose, sample
from tbdprof.suite.faster_rcnn.regions import ALIGNED_SIDE, ANCHORS


class Bottleneck(keras.layers.Layer):  # type: ignore[misc]
    """A residual block: a 1×1, a 3×3 and a 1×1 convolution, and a shortcut around them."""

    def __init__(self, inputs: int, width: int, stride: int, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        outputs = EXPANSION * width
        self.conv1 = convolution("conv1", width, 1, dtype)
        self.bn1 = normalization("bn1", dtype)
        self.conv2 = convolution("conv2", width, 3, dtype, stride)
        self.bn2 = normalization("bn2", dtype)
        self.conv3 = convolution("conv3", outputs, 1, dtype)
        self.bn3 = normalization("bn3", dtype)
        self.relu = keras.layers.ReLU(name="relu", dtype=dtype)
        self.pad = keras.layers.ZeroPadding2D(1, name="pad", dtype=dtype) if stride > 1 else None
        self.downsample = None
        if inputs != outputs:
            shortcut = [convolution("0", outputs, 1, dtype, stride), normalization("1", dtype)]
            self.downsample = keras.Sequential(shortcut, name="downsample")

    def build(self, _shape: object) -> None:
        """Build nothing: each inner layer builds itself when called. Keras would run all of them to find shapes."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return the block's output."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = x if self.pad is None else self.pad(x)
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)) + shortcut)


class ProposalNetwork(keras.layers.Layer):  # type: ignore[misc]
    """Turns shared activations into two scores, (anchors, 2), and four deltas, (anchors, 4), of each anchor."""

    def __init__(self, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        self.conv = keras.layers.Conv2D(PROPOSAL_WIDTH, 3, padding="same", name="conv", dtype=dtype)
        self.relu = keras.layers.ReLU(name="relu", dtype=dtype)
        self.scores = keras.layers.Conv2D(2 * ANCHORS, 1, name="scores", dtype=dtype)
        self.deltas = keras.layers.Conv2D(4 * ANCHORS, 1, name="deltas", dtype=dtype)

    def build(self, _shape: object) -> None:
        """Build nothing: each inner layer builds itself when called. Keras would run all of them to find shapes."""

    def call(self, maps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return scores (for no object and for an object) and deltas, in the anchors' order."""
        x = self.relu(self.conv(maps))
        return tf.reshape(self.scores(x), (-1, 2)), tf.reshape(self.deltas(x), (-1, 4))


class Outputs(NamedTuple):
    """The network's outputs in training: for an image's anchors, and for the regions sampled from its proposals."""

    anchor_scores: tf.Tensor  # (anchors, 2)
    anchor_deltas: tf.Tensor  # (anchors, 4)
    sample: Sample
    scores: tf.Tensor  # (regions, 21)
    deltas: tf.Tensor  # (regions, 84)


class FasterRCNN(keras.Model):  # type: ignore[misc]
    """Computes an image's shared activations, its proposals, and the scores and deltas of regions.

    `before` and `after` are the largest numbers of proposals before and after suppression; `regions` is the number of
    sampled regions. Boxes keep the data type of the arguments.
    """

    def __init__(self, before: int, after: int, regions: int, dtype: str = "float32") -> None:
        super().__init__(name="faster_rcnn", dtype="float64" if dtype == "float64" else "float32")
        self.before, self.after, self.regions = before, after, regions
        self.pad = keras.layers.ZeroPadding2D(3, name="pad", dtype=dtype)
        self.conv1 = convolution("conv1", STEM_WIDTH, 7, dtype, 2)
        self.bn1 = normalization("bn1", dtype)
        self.relu = keras.layers.ReLU(name="relu", dtype=dtype)
        # Padding with zeros does not change the maximum of a ReLU's outputs.
        self.maxpool_pad = keras.layers.ZeroPadding2D(1, name="maxpool_pad", dtype=dtype)
        self.maxpool = keras.layers.MaxPooling2D(3, strides=2, name="maxpool", dtype=dtype)
        self.layer1 = blocks("layer1", STEM_WIDTH, STAGES[0], dtype)
        self.layer2 = blocks("layer2", EXPANSION * STAGES[0].width, STAGES[1], dtype)
        self.layer3 = blocks("layer3", EXPANSION * STAGES[1].width, STAGES[2], dtype)
        self.proposals = ProposalNetwork(name="proposals", dtype=dtype)
        self.layer4 = blocks("layer4", SHARED, STAGES[3], dtype)
        self.avgpool = keras.layers.GlobalAveragePooling2D(name="avgpool", dtype=dtype)
        self.scores = keras.layers.Dense(CLASSES, name="scores", dtype=dtype)
        self.deltas = keras.layers.Dense(4 * CLASSES, name="deltas", dtype=dtype)

    def call(
        self, images: tf.Tensor, anchors: tf.Tensor, boxes: tf.Tensor, labels: tf.Tensor, priorities: tf.Tensor
    ) -> Outputs:
        """Return the outputs for training; `tbdprof.suite.faster_rcnn.targets.Example` describes the arguments."""
        maps = self.maps(images)
        anchor_scores, anchor_deltas = (tf.cast(values, anchors.dtype) for values in self.proposals(maps))
        size = tf.shape(images)[1:3]
        proposals = propose(anchor_scores, anchor_deltas, anchors, size, self.before, self.after)
        regions = sample(proposals, boxes, labels, priorities, self.regions)
        return Outputs(anchor_scores, anchor_deltas, regions, *self.detect(maps, regions.regions))

    def proposed(self, images: tf.Tensor, anchors: tf.Tensor, before: int, after: int) -> tuple[tf.Tensor, Proposals]:
        """Return an image's shared activations and its proposals."""
        maps = self.maps(images)
        scores, deltas = (tf.cast(values, anchors.dtype) for values in self.proposals(maps))
        return maps, propose(scores, deltas, anchors, tf.shape(images)[1:3], before, after)

    def maps(self, images: tf.Tensor) -> tf.Tensor:
        """Return the activations that both networks share, (1, rows, columns, 1024)."""
        x = self.relu(self.bn1(self.conv1(self.pad(images))))
        return self.layer3(self.layer2(self.layer1(self.maxpool(self.maxpool_pad(x)))))

    def detect(self, maps: tf.Tensor, regions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the scores of the classes, (regions, 21), and the deltas for each class, (regions, 84)."""
        features = self.avgpool(self.layer4(align(maps, regions)))
        return tf.cast(self.scores(features), regions.dtype), tf.cast(self.deltas(features), regions.dtype)

    def make_weights(self) -> None:
        """Create the layers' weights without computing anything, and mark the ones that are not trained."""
        with keras.name_scope(self.name):
            self.maps(keras.Input((None, None, 3)))
            self.proposals(keras.Input((None, None, SHARED)))
            self.layer4(keras.Input((ALIGNED_SIDE, ALIGNED_SIDE, SHARED)))
            for head in (self.scores, self.deltas):
                head(keras.Input((FEATURES,)))
        self.conv1.trainable = self.layer1.trainable = False


def convolution(name: str, outputs: int, kernel: int, dtype: str, stride: int = 1) -> keras.layers.Conv2D:
    """Return a convolution without bias that pads by half its kernel, or does not pad if it has a stride.

    With a stride, Keras' "same" pads one side more than the other; so a layer before it pads the activations.
    """
    padding = "same" if stride == 1 else "valid"
    return keras.layers.Conv2D(outputs, kernel, stride, padding, use_bias=False, name=name, dtype=dtype)


def normalization(name: str, dtype: str) -> keras.layers.BatchNormalization:
    """Return a batch normalization that is not trained and therefore uses its fixed statistics."""
    return keras.layers.BatchNormalization(epsilon=NORM_EPSILON, name=name, dtype=dtype, trainable=False)


def blocks(name: str, inputs: int, stage: Stage, dtype: str) -> keras.Sequential:
    """Return a stage's blocks; the first applies the stride and raises the number of channels."""
    first = Bottleneck(inputs, stage.width, stage.stride, name="0", dtype=dtype)
    outputs = EXPANSION * stage.width
    others = (Bottleneck(outputs, stage.width, 1, name=str(index), dtype=dtype) for index in range(1, stage.blocks))
    return keras.Sequential([first, *others], name=name)
