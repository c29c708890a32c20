"""What one training step computes: how often each layer is multiplied for a picture, and the FLOPs of all.

Multiplying a layer takes the same number of multiply-accumulates for its output, for its input's gradient, for its
weight's gradient, and for the gradients of these. A convolution or dense layer of the critic is multiplied for
- the scores of real, generated and interpolated pictures: 3 times;
- the gradients of the first two scores with respect to inputs (without the pictures) and weights: 4 times;
- the slopes: once. They are the gradients of the interpolated pictures' scores with respect to inputs, down to the
  pictures;
- the gradients of the slopes with respect to weights and, if a trained layer lies above, what came from it: twice;
- the gradients that reach the interpolated pictures' activations through the normalizations above: twice. These are
  with respect to inputs (without the pictures) and weights.
"""

from collections.abc import Mapping

from tbdprof.suite.layers import Dense
from tbdprof.suite.wgan import architecture
from tbdprof.suite.wgan.architecture import WIDTH, Normalization

CRITIC_STEPS = 5  # in a training step, before the generator's

# Above the last normalization, where the slopes do not depend on the maps.
_LINEAR = ("block4.conv2", "block4.shortcut")

# What a framework makes besides, or goes without, in one step of the critic,
DEVIATIONS: Mapping[str, Mapping[str, int]] = {
    # The second gradient of mean pooling has one of zeros for its input: the last block's convolution passes it on.
    "torch": {"block4.conv2": 2},
    # Its written-out slopes need no scores, and have the dense layer's weight itself for its input's gradient.
    "mxnet": {"block4.conv2": -1, "block4.shortcut": -1, "dense": -3},
    # Its graph is cut back to what is used, and the slopes need no scores of the interpolates.
    "tensorflow": {"block4.conv2": -1, "block4.shortcut": -1, "dense": -1},
}
# and in the generator's, of every layer of the critic: MXNet makes the gradients of weights that are not trained then.
UNTRAINED: Mapping[str, int] = {"mxnet": 1}


def critic_products(layer: str) -> int:
    """Return how often a layer of the critic is multiplied, per picture of a batch, in one step of the critic."""
    if layer in ("conv", "dense"):
        return 9  # no gradients of pictures: 3 less; no trained layer above, and no normalization
    return 10 if layer in _LINEAR else 12


def step_flops(width: int = WIDTH, critic_steps: int = CRITIC_STEPS, framework: str | None = None) -> int:
    """Return a framework's FLOPs of one training step, divided by the number of pictures in a batch.

    The generator runs forward once for each step of the critic. In its own step each of its layers has three matmuls or
    convolutions, except that the noise needs no gradient. Each layer of the critic then has two, in MXNet three.
    """
    deviations, untrained = DEVIATIONS.get(framework or "", {}), UNTRAINED.get(framework or "", 0)
    made = {layer.name: layer for layer in architecture.generator(width) if not isinstance(layer, Normalization)}
    judged = {layer.name: layer for layer in architecture.critic(width) if not isinstance(layer, Normalization)}
    forward = sum(layer.macs for layer in made.values())
    of_a_critic_step = forward + sum(
        (critic_products(name) + deviations.get(name, 0)) * layer.macs for name, layer in judged.items()
    )
    of_the_generators = sum((2 if isinstance(layer, Dense) else 3) * layer.macs for layer in made.values())
    of_the_generators += (2 + untrained) * sum(layer.macs for layer in judged.values())
    return 2 * (critic_steps * of_a_critic_step + of_the_generators)
