"""The actors' environments: synthetic frames, the emulator's Pong, or the small game of the learning check.

Each actor has its own environment; the actor's number gives it its own random numbers.
"""

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.a3c.architecture import FRAMES, SIDE
from tbdprof.suite.a3c.catch import Catch
from tbdprof.suite.data import loading
from tbdprof.suite.workload import Config

Observation = NDArray[np.uint8]

CATCH = Path("catch")  # as the data path, it selects the game of `catch`

# Measured for a random player of Pong over 4,697 steps: 108 points, 2 of them its own.
POINT = 1 / 43  # the probability that a step ends with a point
OWN = 1 / 54  # the probability that a point is the player's
LAST_POINT = 21  # the episode ends when either side has this many points

_ENVIRONMENT = 3  # joined to the seed, so that each purpose draws its own random numbers
_POOL = 16

_counting = threading.Lock()


class Environment(Protocol):
    """A game played one step at a time; an observation is the last four frames, (4, 84, 84), 0 to 255."""

    def reset(self) -> Observation:
        """Begin an episode; return its first observation."""

    def step(self, action: int) -> tuple[Observation, float, bool]:
        """Take an action; return the next observation, the reward, and whether the episode is over."""


class Synthetic:
    """Random frames, repeated, with rewards as rare as those of a random Pong player."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        pool = random.integers(256, size=(_POOL, SIDE, SIDE), dtype=np.uint8)
        self._frames = np.concatenate([pool, pool[: FRAMES - 1]])
        self._place = 0
        self._points = [0, 0]

    def reset(self) -> Observation:
        """Begin an episode with a score of 0 to 0; the frames continue where they were."""
        self._points = [0, 0]
        return self._seen()

    def step(self, action: int) -> tuple[Observation, float, bool]:
        """Go on to the next frame, whatever the action."""
        self._place = (self._place + 1) % _POOL
        reward = 0.0
        if self._random.random() < POINT:
            own = self._random.random() < OWN
            self._points[own] += 1
            reward = 1.0 if own else -1.0
        return self._seen(), reward, LAST_POINT in self._points

    def _seen(self) -> Observation:
        seen: Observation = self._frames[self._place : self._place + FRAMES]
        return seen


@dataclass(frozen=True, slots=True)
class Timed:
    """An environment that adds its own time to the time spent waiting for data.

    Actors wait in parallel, so the sum over all actors may exceed the elapsed time. The mean over the actors counts.
    """

    environment: Environment
    actors: int

    def reset(self) -> Observation:
        """Begin an episode."""
        began = time.perf_counter()
        seen = self.environment.reset()
        self._count(began)
        return seen

    def step(self, action: int) -> tuple[Observation, float, bool]:
        """Take an action."""
        began = time.perf_counter()
        result = self.environment.step(action)
        self._count(began)
        return result

    def _count(self, began: float) -> None:
        passed = time.perf_counter() - began
        with _counting:  # protects the profiler's counter; the training itself uses no lock
            loading.waited.seconds += passed / self.actors


def environments(config: Config) -> list[Environment]:
    """Return an environment for each actor; raises UsageError if the emulator is not installed."""
    actors = int(config.options["actors"])
    sources = [np.random.default_rng((config.seed, _ENVIRONMENT, number)) for number in range(actors)]
    if config.data is None:
        return [Synthetic(random) for random in sources]
    if config.data == CATCH:
        return [Catch(random) for random in sources]
    from tbdprof.suite.data import atari

    atari.look(config.data)
    return [Timed(atari.Pong(int(random.integers(2**31))), actors) for random in sources]
