"""Faster R-CNN's initial weights, drawn in numpy from a seed: the same in every framework."""

from math import sqrt

import numpy as np

from tbdprof.suite.faster_rcnn.architecture import STAGES, Layer, layers
from tbdprof.suite.initial import Weights, normal

_WEIGHTS = 0  # joined to the seed, so that batches and initial weights draw different random numbers


def weights(seed: int) -> Weights:
    """Yield each layer's weight by name (`layer1.0.conv1.weight`), and each residual branch's last scale.

    ResNet's convolutions are normally distributed with variance 2 / fan-in (He et al., 2015, arXiv:1502.01852), its
    shortcuts with 1 / fan-in, because no ReLU follows a shortcut alone. The other layers have standard deviation 0.01,
    the layer of the regions' deltas 0.001 (Ren et al., section 3.1.3; Girshick, section 2.3), and bias 0. Every batch
    normalization has, for the whole run, mean 0, variance 1, shift 0 and scale 1. Only the last scale of a residual
    branch is 1 / √(blocks in its stage); otherwise activations would grow with every block, as nothing normalizes them.
    """
    generator = np.random.default_rng((seed, _WEIGHTS))
    for layer in layers():
        yield f"{layer.name}.weight", normal(generator, layer.shape, _deviation(layer))
        if layer.name.endswith("conv3"):
            stage = STAGES[int(layer.part[-1]) - 1]
            scale = np.full(layer.outputs, 1 / sqrt(stage.blocks), dtype=np.float32)
            yield layer.name.replace("conv3", "bn3") + ".weight", scale


def _deviation(layer: Layer) -> float:
    if not layer.normalized:
        return 0.001 if layer.name == "deltas" else 0.01
    return sqrt((1 if "downsample" in layer.name else 2) / (layer.inputs * layer.kernel**2))
