"""The FLOP count of one update: its matmuls and convolutions, summed over the layers.

An update of n steps runs the forward pass n times for one observation, to choose an action. It runs once more for the
value of the state after the last action. It then runs forward and backward once for the batch of n. The backward
pass of a layer takes two matmuls or convolutions: one for the gradient of its input, one for the gradient of its
weight. The first layer takes only the second, because its input is the observation. All three frameworks compute
exactly these.
"""

from tbdprof.suite.a3c import architecture
from tbdprof.suite.a3c.architecture import CONV1


def update_flops(steps: int) -> int:
    """Return the FLOPs of one update of a number of steps."""
    forward = architecture.macs()
    return 2 * ((steps + 1) * forward + steps * (3 * forward - CONV1.macs))
