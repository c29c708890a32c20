"""The network's layers: shape, parameters and multiply-accumulates of each, independent of any framework.

Convolutions do not pad. ReLU follows each layer except the two output layers.
"""

from collections.abc import Iterable

from tbdprof.suite.layers import Convolution, Dense

FRAMES = 4  # the most recent frames, in one observation
SIDE = 84  # of a frame in pixels
ACTIONS = 6  # of Pong

Layer = Convolution | Dense

MAPS, MAP_SIDE = 32, 9  # of the convolutions' output
FLAT = MAPS * MAP_SIDE**2
WIDTH = 256

CONV1 = Convolution("conv1", FRAMES, 16, kernel=(8, 8), side=20, stride=4)
CONV2 = Convolution("conv2", 16, MAPS, kernel=(4, 4), side=MAP_SIDE, stride=2)
DENSE = Dense("dense", FLAT, WIDTH)
POLICY = Dense("policy", WIDTH, ACTIONS)
VALUE = Dense("value", WIDTH, 1)
LAYERS: tuple[Layer, ...] = (CONV1, CONV2, DENSE, POLICY, VALUE)


def parameters(layers: Iterable[Layer] = LAYERS) -> int:
    """Return how many trainable parameters layers have."""
    return sum(layer.parameters for layer in layers)


def macs(layers: Iterable[Layer] = LAYERS) -> int:
    """Return the multiply-accumulates of the forward pass for one observation."""
    return sum(layer.macs for layer in layers)
