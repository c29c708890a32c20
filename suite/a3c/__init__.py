"""A3C's facts, after Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, 2016 (arXiv:1602.01783).

The network is the paper's small one for Atari (section 8): two convolutions, a dense layer, and two answers of it, the
policy and the value of a state. `tbdprof.suite.a3c.architecture` holds the layers; the figures here are sums over them.

Actors are threads of one process (section 4). Each has an environment of its own and a copy of the shared parameters.
An update, which is a step of the profiler, is: copy the shared parameters, play `batch_size` steps, take the gradients
of the copy, and apply them to the shared parameters without a lock. All actors share RMSProp's squares (section 4.1),
so a run holds 1 + actors networks of weights, actors networks of gradients, and one network of optimizer state:
(2 + 2 × actors) × 2.71 MB in fp32. With `--actors 1` there is nothing to run side by side: the one actor trains within
the call of `step`, and a seed decides every bit.

Where the paper leaves a choice: the learning rate stays (the paper draws it at random and lets it fall to 0), and it
and RMSProp's epsilon are those of OpenAI Baselines' A2C. The gradient's norm is clipped at 40, as in OpenAI's
universe-starter-agent. Half of the squared error of the value is the value's loss, so that its gradient is the
paper's. An update goes on over the end of an episode, where its returns begin anew, so that each has as many steps.
"""

from tbdprof.suite.a3c.architecture import ACTIONS, FRAMES, SIDE
from tbdprof.suite.a3c.products import update_flops
from tbdprof.suite.workload import Config, Option, Options, Spec

STEPS = 5  # of an update
ACTORS = 2

DISCOUNT = 0.99
ENTROPY_WEIGHT = 0.01
LARGEST_NORM = 40.0  # of the gradient of all parameters
LEARNING_RATE = 7e-4
SQUARES_KEPT = 0.99  # the share of the old mean square in the new one
EPSILON = 1e-5  # added to the mean square, inside of the root, as in the paper

PARAMETERS = 677_943


def sample_bytes(options: Options) -> int:
    """Return what torch saves in fp32 of a step that was played, where all actors are about to go backward at once.

    That is the observation, the maps of the three layers before the answers, the policy and its logarithm, how much
    more came of the step than its value, and the number of the action.
    """
    saved = FRAMES * SIDE**2 + 16 * 20**2 + 32 * 9**2 + 256 + 2 * ACTIONS + 1
    return int(options["actors"]) * (4 * saved + 8)


def watched_steps(options: Options) -> int:
    """Return three updates of each actor: in fewer steps one of them may have none that is whole."""
    actors = int(options["actors"])
    return 3 * actors if actors > 1 else 1


def sample_flops(config: Config, _framework: str) -> float:
    """Return the FLOPs of an update for each of its steps, the same in every framework."""
    return update_flops(config.batch_size) / config.batch_size


SPEC = Spec(
    name="a3c",
    title="A3C",
    task="deep reinforcement learning",
    dataset="Atari 2600",
    unit="environment steps",
    sample_unit="environment steps",
    layers="4",  # the policy and the value as one
    dominant_layer="convolution",
    parameters=PARAMETERS,
    default_batch={"cpu": STEPS, "cuda": STEPS},
    optimizer="shared RMSProp, learning rate 7e-4, 0.99 of the squares kept, gradients clipped at norm 40",
    options=(
        Option("actors", ACTORS, "threads, each with an environment and a copy of the parameters; 8 to 16 on a GPU"),
    ),
    fixed_bytes=4 * 6 * PARAMETERS,  # at two actors
    sample_bytes=sample_bytes,
    sample_flops=sample_flops,
    watched_steps=watched_steps,
)
