"""A3C's facts, after Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, 2016 (arXiv:1602.01783).

The network is the paper's small one for Atari (section 8): two convolutions, a dense layer, and two output layers, for
the policy and for the value of a state. `tbdprof.suite.a3c.architecture` holds the layers; the figures here are sums
over them.

Actors are threads of one process (section 4). Each has its own environment and its own copy of the shared parameters.
One update is one step of the profiler. It copies the shared parameters, plays `batch_size` steps, computes the
gradients of the copy, and applies them to the shared parameters without a lock. All actors share RMSProp's mean squares
(section 4.1), so a run holds 1 + actors networks of weights, actors networks of gradients, and one network of optimizer
state: (2 + 2 × actors) × 2.71 MB in fp32. With `--actors 1` nothing runs in parallel: the one actor trains within the
call of `step`, and the seed determines every bit.

Choices that the paper leaves open:
- The learning rate is constant (the paper draws it at random and lets it fall to 0). The learning rate and RMSProp's
  epsilon are those of OpenAI Baselines' A2C.
- The gradient's norm is clipped at 40, as in OpenAI's universe-starter-agent.
- The loss of the value is half of its squared error, so that its gradient equals the paper's.
- An update continues past the end of an episode, where its returns start anew, so that all updates have the same number
  of steps.
"""

from tbdprof.suite.a3c.architecture import ACTIONS, FRAMES, SIDE
from tbdprof.suite.a3c.products import update_flops
from tbdprof.suite.workload import Config, Option, Options, Spec

STEPS = 5  # environment steps in one update
ACTORS = 2

DISCOUNT = 0.99
ENTROPY_WEIGHT = 0.01
LARGEST_NORM = 40.0  # of the gradient of all parameters
LEARNING_RATE = 7e-4
SQUARES_KEPT = 0.99  # the weight of the old mean square in the new one
EPSILON = 1e-5  # added to the mean square under the root, as in the paper

PARAMETERS = 677_943


def sample_bytes(options: Options) -> int:
    """Return the bytes that torch saves in fp32 for one played step, if all actors start the backward pass together.

    Saved are the observation and the activations of the three layers before the output layers. So are the policy and
    its logarithm, the advantage (by how much the return exceeds the value), and the number of the action.
    """
    saved = FRAMES * SIDE**2 + 16 * 20**2 + 32 * 9**2 + 256 + 2 * ACTIONS + 1
    return int(options["actors"]) * (4 * saved + 8)


def watched_steps(options: Options) -> int:
    """Return three updates for each actor: with fewer steps an actor might not complete a single update."""
    actors = int(options["actors"])
    return 3 * actors if actors > 1 else 1


def sample_flops(config: Config, _framework: str) -> float:
    """Return the FLOPs of an update divided by its steps; they are the same in every framework."""
    return update_flops(config.batch_size) / config.batch_size


SPEC = Spec(
    name="a3c",
    title="A3C",
    task="deep reinforcement learning",
    dataset="Atari 2600",
    unit="environment steps",
    sample_unit="environment steps",
    layers="4",  # the policy and value layers count as one
    dominant_layer="convolution",
    parameters=PARAMETERS,
    default_batch={"cpu": STEPS, "cuda": STEPS},
    optimizer="shared RMSProp, learning rate 7e-4, 0.99 of the squares kept, gradients clipped at norm 40",
    options=(
        Option("actors", ACTORS, "threads, each with an environment and a copy of the parameters; 8 to 16 on a GPU"),
    ),
    fixed_bytes=4 * 6 * PARAMETERS,  # with two actors
    sample_bytes=sample_bytes,
    sample_flops=sample_flops,
    watched_steps=watched_steps,
)
