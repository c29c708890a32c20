"""What one update computes: the products of every layer, and the FLOPs of all.

An update of n steps makes the forward pass n + 1 times for one observation, to choose n actions and for the value of
the state after them, and then once forward and backward for the batch of n. Going backward each layer has two products
more, one for the gradient of its input and one for that of its weight, but the first one, whose input is the
observation, has one. All three frameworks make these and no others.
"""

from tbdprof.suite.a3c import architecture
from tbdprof.suite.a3c.architecture import CONV1


def update_flops(steps: int) -> int:
    """Return the FLOPs of one update of some steps."""
    forward = architecture.macs()
    return 2 * ((steps + 1) * forward + steps * (3 * forward - CONV1.macs))
