"""How an actor plays, and the played steps (a rollout) that one update is computed from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.a3c import DISCOUNT
from tbdprof.suite.a3c.architecture import FRAMES, SIDE
from tbdprof.suite.a3c.environments import Environment

_ACTIONS = 4  # joined to the seed, so that each purpose draws its own random numbers

Floats = NDArray[Any]  # in the run's precision
# Takes observations as `as_input` returns them; returns the policy's logits, (batch, actions), and values, (batch,).
Evaluate = Callable[[NDArray[np.float32]], tuple[Floats, Floats]]


@dataclass(frozen=True, slots=True)
class Rollout:
    """Played steps, in order; every array is (steps, …)."""

    observations: NDArray[np.float32]  # before each step: 4×84×84, from 0 to 1
    actions: NDArray[np.int64]
    returns: NDArray[np.float32]


class Player:
    """Plays one actor's environment with a policy, episode after episode."""

    def __init__(self, environment: Environment, steps: int, seed: int, number: int) -> None:
        self._environment = environment
        self._steps = steps
        self._random = np.random.default_rng((seed, _ACTIONS, number))
        self._seen: NDArray[np.uint8] | None = None

    def play(self, evaluate: Evaluate) -> Rollout:
        """Play the steps of one update, and evaluate the state after them."""
        seen = self._environment.reset() if self._seen is None else self._seen
        observations = np.empty((self._steps, FRAMES, SIDE, SIDE), np.float32)
        actions = np.empty(self._steps, np.int64)
        rewards, ends = [], []
        for place in range(self._steps):
            observations[place] = as_input(seen)
            logits, _ = evaluate(observations[place : place + 1])
            actions[place] = chosen(logits[0], self._random)
            seen, reward, over = self._environment.step(int(actions[place]))
            rewards.append(reward)
            ends.append(over)
            if over:
                seen = self._environment.reset()
        self._seen = seen
        _, values = evaluate(as_input(seen)[None])
        return Rollout(observations, actions, discounted(rewards, ends, float(values[0])))


def as_input(observation: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return an observation as input of the network, from 0 to 1."""
    return observation.astype(np.float32) / np.float32(255)


def chosen(logits: Floats, random: np.random.Generator) -> int:
    """Return an action drawn from the policy that these logits define."""
    weights = np.exp(logits.astype(np.float64) - logits.max())
    up_to = np.cumsum(weights)
    return min(len(logits) - 1, int(np.searchsorted(up_to, random.random() * up_to[-1], side="right")))


def discounted(rewards: Sequence[float], ends: Sequence[bool], value: float) -> NDArray[np.float32]:
    """Return each step's discounted sum of rewards up to the end of its episode, or else up to the last value."""
    found = np.empty(len(rewards), np.float32)
    for place in range(len(rewards) - 1, -1, -1):
        value = rewards[place] + DISCOUNT * value * (not ends[place])
        found[place] = value
    return found
