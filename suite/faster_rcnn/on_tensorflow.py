"""Faster R-CNN in TensorFlow's Keras: channels last, one traced function a step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow import keras

from tbdprof.suite.data.inputs import DetectionBatch, feed
from tbdprof.suite.faster_rcnn import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, anchors, initial, targets
from tbdprof.suite.faster_rcnn.architecture import CLASSES, check
from tbdprof.suite.faster_rcnn.detections import Detections, detections
from tbdprof.suite.faster_rcnn.on_tensorflow_network import FasterRCNN, Outputs
from tbdprof.suite.faster_rcnn.regions import TESTED_AFTER, TESTED_BEFORE, map_sides
from tbdprof.suite.on_tensorflow import device_of, dtype_of, policy_of, traced
from tbdprof.suite.workload import Config, Spec


class Example(NamedTuple):
    """`tbdprof.suite.faster_rcnn.targets.Example` as tensors, the image's channels last."""

    images: tf.Tensor
    boxes: tf.Tensor
    labels: tf.Tensor
    anchors: tf.Tensor
    sampled: tf.Tensor
    positive: tf.Tensor
    weights: tf.Tensor
    targets: tf.Tensor
    priorities: tf.Tensor


TrainStep = Callable[[Example], tf.Tensor]


@dataclass(frozen=True, slots=True)
class Workload:
    """Faster R-CNN and the images it is trained on."""

    spec: Spec
    config: Config
    model: FasterRCNN
    optimizer: keras.optimizers.SGD
    inputs: tuple[tf.Tensor, ...]  # filled if one image is reused, empty otherwise
    batches: Iterator[Example]
    train_step: TrainStep
    numbers: Iterator[int]  # numbers of the images passed to `train`

    def step(self) -> float:
        """Train on the next image once; return the number of images, 1."""
        self.train_step(next(self.batches))
        return 1

    def train(self, batch: DetectionBatch) -> float:
        """Train on an image once; return its loss."""
        example = targets.example(batch, self.config, next(self.numbers))
        return float(self.train_step(on_device(example, self.config)))

    def predict(self, images: NDArray[np.float32]) -> Detections:
        """Return the detections in one image."""
        size = (images.shape[2], images.shape[3])
        before, after = TESTED_BEFORE, min(TESTED_AFTER, int(self.config.options["proposals_after"]))
        with tf.device(device_of(self.config)):
            every = tf.cast(anchors.anchors(*map_sides(*size)), dtype_of(self.config))
            maps, proposals = self.model.proposed(channels_last(images, self.config), every, before, after)
            regions = tf.boolean_mask(proposals.boxes, proposals.valid)
            found = (regions, *self.model.detect(maps, regions))
        return detections(size, *(values.numpy().astype(np.float64) for values in found))


def build(spec: Spec, config: Config) -> Workload:
    """Return Faster R-CNN with its initial weights, its optimizer and its images on the device."""
    check(config)
    before, after, regions = (int(config.options[name]) for name in ("proposals_before", "proposals_after", "regions"))
    with tf.device(device_of(config)):
        model = FasterRCNN(before, after, regions, policy_of(config))
        model.make_weights()
        initialize(model, config.seed)
        optimizer = keras.optimizers.SGD(LEARNING_RATE, MOMENTUM)
        optimizer.build(model.trainable_variables)
    fed = feed(targets.examples(config), partial(on_device, config=config), kept=config.data is None)
    inputs = next(fed) if config.data is None else ()
    return Workload(spec, config, model, optimizer, inputs, fed, train_step(model, optimizer, config), count())


def train_step(model: FasterRCNN, optimizer: keras.optimizers.SGD, config: Config) -> TrainStep:
    """Return the function that trains on an image once and returns its loss before the update."""

    @traced(config, input_signature=[signature(dtype_of(config))])
    def step(example: Example) -> tf.Tensor:
        with tf.device(device_of(config)):
            with tf.GradientTape() as tape:
                loss = total_loss(model, example)
            weights = model.trainable_variables
            gradients = tape.gradient(loss, weights)
            # Keras' own weight decay is another algorithm: it shrinks the weights without passing through the momentum.
            decayed = [gradient + WEIGHT_DECAY * weight for gradient, weight in zip(gradients, weights, strict=True)]
            optimizer.apply(decayed, weights)
            return loss

    return step


def signature(dtype: tf.DType) -> Example:
    """Return the shapes of a step's arguments: images differ in size and in the number of objects."""
    shapes = Example((1, None, None, 3), (None, 4), (None,), (None, 4), (None,), (None,), (None,), (None, 4), (None,))
    whole = ("labels", "sampled", "positive")
    return Example(
        *(tf.TensorSpec(shape, tf.int32 if name in whole else dtype, name) for name, shape in shapes._asdict().items())
    )


def total_loss(model: FasterRCNN, example: Example) -> tf.Tensor:
    """Return an image's loss: the proposal network's and the detection network's."""
    outputs = model(example.images, example.anchors, example.boxes, example.labels, example.priorities)
    return anchor_loss(outputs, example) + region_loss(outputs)


def anchor_loss(outputs: Outputs, example: Example) -> tf.Tensor:
    """Return the proposal network's loss, as a mean over the sampled anchors.

    The paper weighs the deltas' loss by 10 over the number of positions, about 2,400; this is about 1 / 256, the weight
    of a sampled anchor (Ren et al., equation 1).
    """
    scores, deltas = (tf.gather(each, example.sampled) for each in (outputs.anchor_scores, outputs.anchor_deltas))
    cross_entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(example.positive, scores)
    distances = tf.cast(example.positive, deltas.dtype) * smooth_l1(deltas - example.targets)
    return tf.reduce_sum(example.weights * (cross_entropies + distances))


def region_loss(outputs: Outputs) -> tf.Tensor:
    """Return the detection network's loss, a mean over the sampled regions; deltas are those of the region's class."""
    sample = outputs.sample
    deltas = tf.gather(tf.reshape(outputs.deltas, (-1, CLASSES, 4)), sample.labels, batch_dims=1)
    cross_entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(sample.labels, outputs.scores)
    distances = tf.cast(sample.labels > 0, deltas.dtype) * smooth_l1(deltas - sample.targets)
    return tf.reduce_sum(sample.weights * (cross_entropies + distances)) / tf.reduce_sum(sample.weights)


def smooth_l1(differences: tf.Tensor) -> tf.Tensor:
    """Return each row's smooth L1 distance: half the square up to 1, linear beyond (Girshick, equation 3)."""
    sizes = tf.abs(differences)
    return tf.reduce_sum(tf.where(sizes < 1, 0.5 * differences**2, sizes - 0.5), 1)


def initialize(model: FasterRCNN, seed: int) -> None:
    """Set the weights drawn from a seed on a new model."""
    variables = {variable.path: variable for variable in model.variables}
    for name, values in initial.weights(seed):
        layer = f"{model.name}/{name.removesuffix('.weight').replace('.', '/')}"
        if values.ndim == 1:
            variables[f"{layer}/gamma"].assign(values)
        else:
            axes = (2, 3, 1, 0) if values.ndim == 4 else (1, 0)
            variables[f"{layer}/kernel"].assign(tf.transpose(values, axes))


def on_device(example: targets.Example, config: Config) -> Example:
    """Return an example as tensors in TensorFlow's own memory; a plain constant may share numpy's memory."""
    with tf.device(device_of(config)):
        values = {name: as_tensor(getattr(example, name), config) for name in Example._fields[1:]}
        return Example(channels_last(example.images, config), **values)


def as_tensor(values: NDArray[np.generic], config: Config) -> tf.Tensor:
    """Return numbers in the data type of boxes; integers have 32 bits."""
    return tf.cast(values, dtype_of(config) if np.issubdtype(values.dtype, np.floating) else tf.int32)


def channels_last(images: NDArray[np.float32], config: Config) -> tf.Tensor:
    """Return images in the model's data type, channels last."""
    return tf.transpose(tf.cast(images, dtype_of(config)), (0, 2, 3, 1))
