"""The emulator's Pong comes as its wrappers are said to make it; without the extra one line says what to type."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tbdprof import suite
from tbdprof.errors import UsageError
from tbdprof.suite.a3c import SPEC, environments
from tbdprof.suite.a3c.environments import Timed
from tbdprof.suite.data import atari, datasets, loading

EMULATOR = all(importlib.util.find_spec(name) for name in atari.MODULES)
with_the_emulator = pytest.mark.skipif(
    not EMULATOR, reason="the emulator is not installed: pip install 'tbdprof[atari]'"
)


def test_a_folder_is_refused() -> None:
    with pytest.raises(UsageError, match=r"give --data atari or synthetic, not games$"):
        datasets.look(SPEC, Path("games"))


def test_without_the_extra_one_line_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(atari, "find_spec", lambda name: None if name in ("ale_py", "cv2") else found(name))

    with pytest.raises(UsageError) as raised:
        datasets.look(SPEC, Path("atari"))
    assert str(raised.value) == "--data atari needs ale_py and cv2: pip install 'tbdprof[atari]'"


@with_the_emulator
def test_an_observation_is_four_gray_frames_each_of_four_of_the_games() -> None:
    datasets.look(SPEC, Path("atari"))
    game = atari.Pong(3)
    seen = game.reset()
    for _ in range(30):
        after, reward, over = game.step(2)
        assert (after.shape, after.dtype) == ((4, 84, 84), np.uint8)
        assert np.array_equal(after[:3], seen[1:])
        assert (type(reward), reward in (-1.0, 0.0, 1.0), over) == (float, True, False)
        seen = after

    assert seen.max() > 200  # the paddles
    assert not np.array_equal(seen[3], seen[2])


@with_the_emulator
def test_an_episode_of_a_player_that_stands_still_is_lost_by_21_points() -> None:
    game = atari.Pong(0)
    game.reset()
    rewards, over = [], False
    while not over:
        _, reward, over = game.step(0)
        rewards.append(reward)

    assert sum(rewards) == -21
    assert 700 < len(rewards) < 1100  # of four frames each
    game.reset()
    assert game.step(0)[2] is False


@with_the_emulator
def test_a_seed_decides_the_game() -> None:
    def played(seed: int) -> list[bytes]:
        game = atari.Pong(seed)
        return [game.reset().tobytes(), *(game.step(action % 6)[0].tobytes() for action in range(60))]

    assert played(1) == played(1)
    assert played(1) != played(2)


@with_the_emulator
def test_actors_play_games_of_their_own_and_their_time_is_waiting_for_data() -> None:
    config = suite.configure(SPEC, seed=1, options={"actors": 2}, data=Path("atari"))
    before = loading.waited.seconds
    one, other = environments.environments(config)
    first, second = one.reset(), other.reset()

    assert isinstance(one, Timed)
    assert one.actors == 2
    assert loading.waited.seconds > before
    for action in range(30):
        first, second = one.step(action % 6)[0], other.step(action % 6)[0]
    assert not np.array_equal(first, second)
