"""A3C's learning check: the mean reward in held-out episodes of a small game, compared with a random player's.

The game is that of `tbdprof.suite.a3c.catch`. A random player catches one block in six, because its paddle does not
depend on the block. So its mean reward is 1/6 - 5/6.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tbdprof.suite.a3c import ACTORS, SPEC, STEPS
from tbdprof.suite.a3c.catch import FALLS, PLACES, Catch
from tbdprof.suite.a3c.environments import CATCH
from tbdprof.suite.a3c.rollouts import as_input, chosen, discounted
from tbdprof.suite.a3c.training import Workload
from tbdprof.suite.checks.learning import Build, Check, Learned, Point, Progress, Setting, configured

UPDATES = 4000
EVERY = 400  # updates between two evaluations on held-out episodes
EPISODES = 100
CHANCE = (1 - (PLACES - 1)) / PLACES
WANTED = 0.0  # mean reward at which as many blocks are caught as missed

_HELD_OUT = 10  # joined to the seed, so that each purpose draws its own random numbers


def run(build: Build, setting: Setting, progress: Progress) -> Learned:
    """Train the actors; evaluate the shared parameters on held-out episodes while all actors are paused."""
    updates = setting.steps or CHECK.steps
    config = configured(SPEC, CHECK, setting)
    workload: Workload = build(replace(config, data=CATCH))  # type: ignore[assignment]
    try:
        curve = tuple(_curve(workload, updates, setting.seed, progress))
    finally:
        workload.close()
    return Learned(
        measure="mean reward (loss: of the values)",
        chance=CHANCE,
        frequency_loss=None,
        curve=curve,
        data=f"a game in which a paddle is to catch what falls, on {PLACES}×{PLACES} places drawn at 84×84 pixels",
        passed=passes(curve),
        rule="in held-out episodes more blocks are caught than missed, where a random player catches one in six",
    )


def passes(curve: tuple[Point, ...]) -> bool:
    """Return whether the mean reward exceeds both that of catching half of all blocks and a random player's."""
    return curve[-1].quality > max(WANTED, CHANCE)


def look(workload: Workload, update: int, seconds: float, seed: int) -> Point:
    """Return the figures of held-out episodes, played in parallel by the policy; each evaluation uses the same ones."""
    random = np.random.default_rng((seed, _HELD_OUT))
    games = [Catch(np.random.default_rng((seed, _HELD_OUT, number))) for number in range(EPISODES)]
    seen, values, rewards = [game.reset() for game in games], [], []
    for _ in range(FALLS):
        logits, valued = workload.predict(np.stack([as_input(each) for each in seen]))
        values.append(valued)
        played = [game.step(chosen(each, random)) for game, each in zip(games, logits, strict=True)]
        seen = [observation for observation, _, _ in played]
        rewards.append([reward for _, reward, _ in played])
    ends = [False] * (FALLS - 1) + [True]
    returns = [discounted(each, ends, 0.0) for each in zip(*rewards, strict=True)]
    errors = np.stack(returns, 1) - np.stack(values)
    return Point(update, seconds, float(np.square(errors).mean() / 2), float(np.sum(rewards) / EPISODES))


def _curve(workload: Workload, updates: int, seed: int, progress: Progress) -> Iterator[Point]:
    seconds = 0.0
    yield look(workload, 0, seconds, seed)
    for update in range(1, updates + 1):
        began = time.perf_counter()
        workload.step()
        seconds += time.perf_counter() - began
        progress(update, updates)
        if update % EVERY == 0 or update == updates:
            yield look(workload, update, seconds, seed)


CHECK = Check(run, {"actors": ACTORS}, STEPS, UPDATES)
