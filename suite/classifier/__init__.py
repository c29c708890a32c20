"""What the image classifiers share: their training settings, and the constants of their layers.

They are trained by SGD with momentum, at the learning rate of Goyal et al., 2017 (arXiv:1706.02677).
"""

CLASSES = 1000  # of ImageNet1K
NORM_EPSILON = 1e-5
NORM_MOMENTUM = 0.1  # the weight of the new batch in a running statistic
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4


def learning_rate(batch_size: int) -> float:
    """Return the learning rate at a batch size: 0.1 at 256, linear in it (Goyal et al., section 2.1)."""
    return 0.1 * batch_size / 256
