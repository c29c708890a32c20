"""A3C in PyTorch.

torch's own RMSprop adds epsilon to the root of the mean square; the paper and the other frameworks add it to the mean
square under the root. The class derived from it here does so too, and updates parameters and mean squares that all
actors share.
"""

from collections.abc import Callable, Sequence
from typing import TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tbdprof.suite.a3c import ENTROPY_WEIGHT, EPSILON, LARGEST_NORM, LEARNING_RATE, SQUARES_KEPT, initial
from tbdprof.suite.a3c.architecture import CONV1, CONV2, DENSE, FRAMES, POLICY, SIDE, VALUE
from tbdprof.suite.a3c.rollouts import Floats, Rollout
from tbdprof.suite.a3c.training import Workload, actors
from tbdprof.suite.initial import Weights
from tbdprof.suite.layers import Convolution, Dense
from tbdprof.suite.on_torch import device_of, dtype_of
from tbdprof.suite.workload import Config, Spec


class Placement(TypedDict):
    """The device and the data type of tensors."""

    device: torch.device
    dtype: torch.dtype


class Network(nn.Module):
    """Observations (batch, 4, 84, 84) to logits (batch, 6) and values (batch,)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = convolution(CONV1), convolution(CONV2)
        self.dense, self.policy, self.value = dense(DENSE), dense(POLICY), dense(VALUE)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's logits and the values."""
        x = self.relu(self.conv1(observations))
        x = self.relu(self.conv2(x))
        x = self.relu(self.dense(x.flatten(1)))
        return self.policy(x), self.value(x).squeeze(1)


class Shared(Network):
    """The parameters that all actors update."""


class Copy(Network):
    """An actor's copy of the parameters, with which it plays and computes gradients."""


def convolution(layer: Convolution) -> nn.Conv2d:
    """Return a convolution that does not pad."""
    return nn.Conv2d(layer.inputs, layer.outputs, layer.kernel, layer.stride)


def dense(layer: Dense) -> nn.Linear:
    """Return a dense layer."""
    return nn.Linear(layer.inputs, layer.outputs)


class RMSprop(torch.optim.RMSprop):
    """RMSProp that updates the shared parameters and mean squares by the gradients of an actor's copy, without a lock.

    Two actors may change one tensor at the same time. Each reads and writes it in several operators, and an update that
    is lost in this way stays lost. In every actor's optimizer the shared state is stored under the copy's parameters.
    """

    def __init__(self, copy: nn.Module, shared: nn.Module, squares: Sequence[Tensor], counts: Sequence[Tensor]) -> None:
        super().__init__(copy.parameters(), LEARNING_RATE, SQUARES_KEPT, EPSILON)
        self._shared = list(shared.parameters())
        for parameter, square, count in zip(copy.parameters(), squares, counts, strict=True):
            self.state[parameter] = {"step": count, "square_avg": square}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the shared parameters by the gradients of the copy's parameters."""
        (group,) = self.param_groups
        for parameter, shared in zip(group["params"], self._shared, strict=True):
            state = self.state[parameter]
            state["step"] += 1
            square = state["square_avg"].mul_(group["alpha"])
            square.addcmul_(parameter.grad, parameter.grad, value=1 - group["alpha"])
            shared.addcdiv_(parameter.grad, square.add(group["eps"]).sqrt_(), value=-group["lr"])


class Agent:
    """One actor's copy of the network; see `tbdprof.suite.a3c.training.Agent`."""

    def __init__(self, shared: Shared, copy: Copy, optimizer: RMSprop, config: Config) -> None:
        self._shared, self._copy, self._optimizer, self._config = shared, copy, optimizer, config
        place, steps = placement(config), config.batch_size
        self._seen = torch.zeros((1, FRAMES, SIDE, SIDE), **place)
        self._observations = torch.zeros((steps, FRAMES, SIDE, SIDE), **place)
        self._actions = torch.zeros(steps, dtype=torch.int64, device=place["device"])
        self._returns = torch.zeros(steps, **place)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors of observations, actions and returns, which every update reuses."""
        return self._seen, self._observations, self._actions, self._returns

    @torch.no_grad()
    def copy_shared(self) -> None:
        """Copy the shared parameters."""
        for parameter, shared in zip(self._copy.parameters(), self._shared.parameters(), strict=True):
            parameter.copy_(shared)

    @torch.no_grad()
    def evaluate(self, observations: NDArray[np.float32]) -> tuple[Floats, Floats]:
        """Return the copy's logits and values."""
        given = torch.from_numpy(observations)
        seen = self._seen.copy_(given) if len(given) == 1 else given.to(self._seen)
        with self._precision():
            logits, values = self._copy(seen)
        return logits.to(self._returns).cpu().numpy(), values.to(self._returns).cpu().numpy()

    def learn(self, rollout: Rollout) -> Callable[[], float]:
        """Update the shared parameters by the copy's gradients; return a function that returns the loss."""
        self._optimizer.zero_grad()
        loss = self.loss(rollout)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._copy.parameters(), LARGEST_NORM)
        self._optimizer.step()
        return loss.detach().item

    def loss(self, rollout: Rollout) -> Tensor:
        """Return the copy's loss on played steps."""
        played = (rollout.observations, rollout.actions, rollout.returns)
        for kept, values in zip((self._observations, self._actions, self._returns), played, strict=True):
            kept.copy_(torch.from_numpy(values))
        with self._precision():
            logits, values = self._copy(self._observations)
        return loss_of(logits.to(self._returns), values.to(self._returns), self._actions, self._returns)

    def _precision(self) -> torch.autocast:
        enabled = self._config.precision == "bf16"
        return torch.autocast(self._seen.device.type, torch.bfloat16, enabled=enabled)


def loss_of(logits: Tensor, values: Tensor, actions: Tensor, returns: Tensor) -> Tensor:
    """Return the loss summed over steps: the policy's loss, the value's loss, and the entropy bonus."""
    log_policy = functional.log_softmax(logits, 1)
    advantages = returns - values
    done = log_policy.gather(1, actions[:, None]).squeeze(1)
    entropies = -(log_policy.exp() * log_policy).sum(1)
    return (0.5 * advantages.square() - done * advantages.detach() - ENTROPY_WEIGHT * entropies).sum()


def build(spec: Spec, config: Config) -> Workload:
    """Return A3C with its initial weights and its actors on the device."""
    place = placement(config)
    shared = Shared().to(**place).requires_grad_(False)
    initialize(shared, initial.weights(config.seed))
    copies = [Copy().to(**place) for _ in range(int(config.options["actors"]))]
    squares = [torch.zeros_like(each) for each in shared.parameters()]
    counts = [torch.zeros(()) for _ in squares]  # updates of each parameter, which torch's own RMSprop counts too
    optimizers = [RMSprop(copy, shared, squares, counts) for copy in copies]
    agents = [Agent(shared, *pair, config) for pair in zip(copies, optimizers, strict=True)]
    for agent in agents:
        agent.copy_shared()
    inputs = [kept for agent in agents for kept in agent.inputs]
    return Workload(spec, config, [shared, *copies], optimizers, inputs, agents, actors(agents, config))


@torch.no_grad()
def initialize(network: nn.Module, weights: Weights) -> None:
    """Set the drawn parameters on a new network."""
    for name, values in weights:
        network.get_parameter(name).copy_(torch.from_numpy(values))


def placement(config: Config) -> Placement:
    """Return the device and the data type of a run's tensors."""
    return {"device": device_of(config), "dtype": dtype_of(config)}
