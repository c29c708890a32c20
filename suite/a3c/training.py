"""A3C as it trains, whatever the framework: actors with their players and their agents, which a framework makes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.a3c.actors import Actors
from tbdprof.suite.a3c.environments import environments
from tbdprof.suite.a3c.rollouts import Floats, Player, Rollout
from tbdprof.suite.workload import Config, Spec


class Agent(Protocol):
    """One actor's copy of the network, and its way to change the shared one."""

    def copy_shared(self) -> None:
        """Copy the shared parameters."""

    def evaluate(self, observations: NDArray[np.float32]) -> tuple[Floats, Floats]:
        """Return the policy's logits, (batch, actions), and the values, (batch,), by the copy."""

    def learn(self, rollout: Rollout) -> Callable[[], Any]:
        """Change the shared parameters by the gradients of the copy; return what waits for the loss and tells it."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A3C with its actors; see `tbdprof.suite.workload.Concurrent`."""

    spec: Spec
    config: Config
    model: Sequence[object]  # the shared network, and each actor's copy
    optimizer: Sequence[object]
    inputs: Sequence[object]
    agents: Sequence[Agent]
    actors: Actors

    def step(self) -> float:
        """Wait for the next update that any actor finishes; return how many environment steps it took."""
        return self.actors.step()

    def pause(self) -> None:
        """Let each actor end the update it is in; return when none computes."""
        self.actors.pause()

    def close(self) -> None:
        """End the actors' threads."""
        self.actors.close()

    def train(self, batch: Rollout) -> float:
        """Let the first actor make an update of steps that were played elsewhere, all paused; return its loss."""
        self.pause()
        agent = self.agents[0]
        agent.copy_shared()
        return float(agent.learn(batch)())

    def predict(self, inputs: NDArray[np.float32]) -> tuple[Floats, Floats]:
        """Return the policy's logits and the values of observations by the shared parameters, all actors paused."""
        self.pause()
        agent = self.agents[0]
        agent.copy_shared()
        return agent.evaluate(inputs)


def actors(agents: Sequence[Agent], config: Config) -> Actors:
    """Return the actors of these agents, each with an environment of its own."""
    played = environments(config)
    players = [Player(each, config.batch_size, config.seed, number) for number, each in enumerate(played)]
    return Actors([partial(update, *pair, config.batch_size) for pair in zip(agents, players, strict=True)])


def update(agent: Agent, player: Player, steps: int) -> float:
    """Make one update; return the environment steps it took."""
    agent.copy_shared()
    agent.learn(player.play(agent.evaluate))
    return steps
