"""A3C in MXNet's Gluon.

MXNet's engine lets only one operator at a time write an array. So two actors' updates of one parameter never overlap,
while their updates of different parameters may interleave.
"""

from collections.abc import Callable, Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn
from numpy.typing import NDArray

from tbdprof.suite.a3c import ENTROPY_WEIGHT, EPSILON, LARGEST_NORM, LEARNING_RATE, SQUARES_KEPT, initial
from tbdprof.suite.a3c.architecture import CONV1, CONV2, DENSE, FRAMES, POLICY, SIDE, VALUE
from tbdprof.suite.a3c.rollouts import Floats, Rollout
from tbdprof.suite.a3c.training import Workload, actors
from tbdprof.suite.layers import Convolution, Dense
from tbdprof.suite.on_mxnet import check_precision, context_of, dtype_of
from tbdprof.suite.workload import Config, Spec


class Network(nn.HybridBlock):  # type: ignore[misc]
    """Observations (batch, 4, 84, 84) to logits (batch, 6) and values (batch,)."""

    def __init__(self, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.conv1, self.conv2 = convolution(CONV1), convolution(CONV2)
            self.dense, self.policy, self.value = dense(DENSE, "relu"), dense(POLICY), dense(VALUE)

    def hybrid_forward(self, F: Any, observations: Any) -> Any:  # noqa: N803
        """Return the policy's logits and the values."""
        x = self.dense(self.conv2(self.conv1(observations)))
        return self.policy(x), F.reshape(self.value(x), (-1,))


class Shared(Network):
    """The parameters that all actors update; MXNet keeps no gradients for them."""


class Copy(Network):
    """An actor's copy of the parameters, with which it plays and computes gradients."""


def convolution(layer: Convolution) -> nn.Conv2D:
    """Return a convolution that does not pad, with ReLU."""
    return nn.Conv2D(layer.outputs, layer.kernel, layer.stride, activation="relu", in_channels=layer.inputs)


def dense(layer: Dense, activation: str | None = None) -> nn.Dense:
    """Return a dense layer."""
    return nn.Dense(layer.outputs, activation, in_units=layer.inputs)


class RMSProp(mx.optimizer.RMSProp):  # type: ignore[misc]
    """RMSProp that updates shared parameters and mean squares by the gradients of an actor's copy, without a lock."""

    def __init__(self, shared: Sequence[mx.nd.NDArray], squares: Sequence[mx.nd.NDArray]) -> None:
        super().__init__(LEARNING_RATE, SQUARES_KEPT, epsilon=EPSILON)
        self._shared, self._squares = shared, squares

    def create_state(self, index: int, weight: mx.nd.NDArray) -> tuple[mx.nd.NDArray]:
        """Return the mean squares of a parameter, which exist already."""
        return (self._squares[index],)

    def update(self, index: int, weight: mx.nd.NDArray, grad: mx.nd.NDArray, state: tuple[mx.nd.NDArray]) -> None:
        """Update the shared parameter by the gradient of the copy's parameter."""
        super().update(index, self._shared[index], grad, state)


class Agent:
    """One actor's copy of the network; see `tbdprof.suite.a3c.training.Agent`."""

    def __init__(self, shared: Shared, copy: Copy, trainer: gluon.Trainer, config: Config) -> None:
        self._copy, self._trainer = copy, trainer
        self._pairs = list(zip(arrays(shared), arrays(copy), strict=True))
        self._gradients = [each.grad() for each in copy.collect_params().values()]
        place, steps = placement(config), config.batch_size
        self._place = place
        self._seen = mx.nd.zeros((1, FRAMES, SIDE, SIDE), **place)
        self._observations = mx.nd.zeros((steps, FRAMES, SIDE, SIDE), **place)
        self._actions = mx.nd.zeros(steps, place["ctx"], "int32")
        self._returns = mx.nd.zeros(steps, **place)

    @property
    def inputs(self) -> tuple[mx.nd.NDArray, ...]:
        """The arrays of observations, actions and returns, which every update reuses."""
        return self._seen, self._observations, self._actions, self._returns

    def copy_shared(self) -> None:
        """Copy the shared parameters."""
        for shared, copy in self._pairs:
            shared.copyto(copy)

    def evaluate(self, observations: NDArray[np.float32]) -> tuple[Floats, Floats]:
        """Return the copy's logits and values."""
        seen = self._seen
        if len(observations) == 1:
            seen[:] = observations
        else:
            seen = mx.nd.array(observations, **self._place)
        logits, values = self._copy(seen)
        return logits.asnumpy(), values.asnumpy()

    def learn(self, rollout: Rollout) -> Callable[[], float]:
        """Update the shared parameters by the copy's gradients; return a function that awaits and returns the loss."""
        with autograd.record():
            loss = self.loss(rollout)
        loss.backward()
        clip(self._gradients)
        self._trainer.step(1)  # the loss is a sum
        return loss.asscalar  # type: ignore[no-any-return]

    def loss(self, rollout: Rollout) -> mx.nd.NDArray:
        """Return the copy's loss on played steps."""
        self._observations[:] = rollout.observations
        self._actions[:] = rollout.actions
        self._returns[:] = rollout.returns
        logits, values = self._copy(self._observations)
        return loss_of(logits, values, self._actions, self._returns)


def clip(gradients: Sequence[mx.nd.NDArray]) -> None:
    """Scale gradients down to the largest joint norm allowed; Gluon's own function supports float32 only."""
    norm = mx.nd.add_n(*(mx.nd.norm(each).square() for each in gradients)).sqrt()
    scale = mx.nd.minimum(LARGEST_NORM / norm, 1)
    for each in gradients:
        each *= scale


def loss_of(
    logits: mx.nd.NDArray, values: mx.nd.NDArray, actions: mx.nd.NDArray, returns: mx.nd.NDArray
) -> mx.nd.NDArray:
    """Return the loss summed over steps: the policy's loss, the value's loss, and the entropy bonus."""
    log_policy = mx.nd.log_softmax(logits)
    advantages = returns - values
    done = mx.nd.pick(log_policy, actions)
    entropies = -(mx.nd.exp(log_policy) * log_policy).sum(1)
    return (0.5 * advantages.square() - done * advantages.detach() - ENTROPY_WEIGHT * entropies).sum()


def build(spec: Spec, config: Config) -> Workload:
    """Return A3C with its initial weights and its actors on the device."""
    check_precision(spec, config)
    shared = Shared()
    shared.collect_params().setattr("grad_req", "null")
    initialize(shared, config)
    copies = [Copy() for _ in range(int(config.options["actors"]))]
    for copy in copies:
        initialize(copy, config)
        copy.hybridize()
    squares = [mx.nd.zeros_like(each) for each in arrays(shared)]
    trainers = [
        gluon.Trainer(list(copy.collect_params().values()), RMSProp(arrays(shared), squares), kvstore=None)
        for copy in copies
    ]
    agents = [Agent(shared, *pair, config) for pair in zip(copies, trainers, strict=True)]
    inputs = [kept for agent in agents for kept in agent.inputs]
    return Workload(spec, config, [shared, *copies], trainers, inputs, agents, actors(agents, config))


def initialize(network: Network, config: Config) -> None:
    """Set the drawn parameters on a new network."""
    place = placement(config)
    network.cast(place["dtype"])
    network.initialize(mx.init.Zero(), ctx=place["ctx"])
    parameters = network._collect_params_with_prefix()  # noqa: SLF001 - the only way to structural names
    for name, values in initial.weights(config.seed):
        parameters[name].set_data(mx.nd.array(values))


def arrays(network: Network) -> list[mx.nd.NDArray]:
    """Return a network's parameters in the trainer's order."""
    return [each.data() for each in network.collect_params().values()]


def placement(config: Config) -> dict[str, Any]:
    """Return the device and the data type of a run's arrays."""
    return {"ctx": context_of(config), "dtype": dtype_of(config)}
