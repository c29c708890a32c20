"""A3C's training, independent of the framework: actors with their players, and agents that a framework provides."""

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
    """One actor's copy of the network, which also updates the shared network."""

    def copy_shared(self) -> None:
        """Copy the shared parameters."""

    def evaluate(self, observations: NDArray[np.float32]) -> tuple[Floats, Floats]:
        """Return the copy's logits of the policy, (batch, actions), and its values, (batch,)."""

    def learn(self, rollout: Rollout) -> Callable[[], Any]:
        """Update the shared parameters by the copy's gradients; return a function that awaits and returns the loss."""


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
        """Let each actor finish its current update; return when no actor computes."""
        self.actors.pause()

    def close(self) -> None:
        """End the actors' threads."""
        self.actors.close()

    def train(self, batch: Rollout) -> float:
        """Pause all actors and let the first make an update of steps played elsewhere; return its loss."""
        self.pause()
        agent = self.agents[0]
        agent.copy_shared()
        return float(agent.learn(batch)())

    def predict(self, inputs: NDArray[np.float32]) -> tuple[Floats, Floats]:
        """Pause all actors and return the logits and values that the shared parameters give for observations."""
        self.pause()
        agent = self.agents[0]
        agent.copy_shared()
        return agent.evaluate(inputs)


def actors(agents: Sequence[Agent], config: Config) -> Actors:
    """Return the actors of these agents, each with its own environment."""
    played = environments(config)
    players = [Player(each, config.batch_size, config.seed, number) for number, each in enumerate(played)]
    return Actors([partial(update, *pair, config.batch_size) for pair in zip(agents, players, strict=True)])


def update(agent: Agent, player: Player, steps: int) -> float:
    """Make one update; return the number of environment steps it took."""
    agent.copy_shared()
    agent.learn(player.play(agent.evaluate))
    return steps
