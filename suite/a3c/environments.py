"""What actors play: synthetic frames, the emulator's Pong, or the small game that learning is checked with.

Each actor has an environment of its own, drawn apart from the others' by its number.
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

CATCH = Path("catch")  # given as data, the game of `catch`

# What a random player of Pong was seen to do in 4,697 steps: 108 points, of which 2 were its own.
POINT = 1 / 43  # the chance that a step ends with a point
OWN = 1 / 54  # that a point is the player's
LAST_POINT = 21  # whoever has so many ends the episode

_ENVIRONMENT = 3  # beside the seed, so that what one seed is for is drawn apart
_POOL = 16

_counting = threading.Lock()


class Environment(Protocol):
    """A game played one step at a time; an observation is the last four frames, (4, 84, 84), 0 to 255."""

    def reset(self) -> Observation:
        """Begin an episode; return its first observation."""

    def step(self, action: int) -> tuple[Observation, float, bool]:
        """Take an action; return what is seen then, the reward, and whether the episode is over."""


class Synthetic:
    """Random frames, again and again, with rewards as rare as a random player's of Pong."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        pool = random.integers(256, size=(_POOL, SIDE, SIDE), dtype=np.uint8)
        self._frames = np.concatenate([pool, pool[: FRAMES - 1]])
        self._place = 0
        self._points = [0, 0]

    def reset(self) -> Observation:
        """Begin an episode with nobody ahead; frames go on where they were."""
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
    """An environment whose time counts as waiting for data, shared by all actors.

    Actors wait side by side, so that the sum over them may exceed the time that passed: what counts is the mean.
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
        with _counting:  # of the profiler's own figure, not of the training
            loading.waited.seconds += passed / self.actors


def environments(config: Config) -> list[Environment]:
    """Return an environment for each actor; raises UsageError where the emulator is not installed."""
    actors = int(config.options["actors"])
    sources = [np.random.default_rng((config.seed, _ENVIRONMENT, number)) for number in range(actors)]
    if config.data is None:
        return [Synthetic(random) for random in sources]
    if config.data == CATCH:
        return [Catch(random) for random in sources]
    from tbdprof.suite.data import atari

    atari.look(config.data)
    return [Timed(atari.Pong(int(random.integers(2**31))), actors) for random in sources]
