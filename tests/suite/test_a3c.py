"""A3C's network, what its actors play, and how they train are what they are said to be, in every framework."""

import threading
import time
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tbdprof import suite
from tbdprof.errors import UsageError
from tbdprof.suite.a3c import (
    PARAMETERS,
    SPEC,
    catch,
    environments,
    initial,
    learning,
    on_mxnet,
    on_tensorflow,
    on_torch,
)
from tbdprof.suite.a3c.architecture import LAYERS, parameters
from tbdprof.suite.a3c.catch import Catch
from tbdprof.suite.a3c.environments import Synthetic, Timed
from tbdprof.suite.a3c.learning import CHANCE
from tbdprof.suite.a3c.rollouts import Player, as_input, chosen, discounted
from tbdprof.suite.a3c.training import Workload
from tbdprof.suite.checks.learning import Point, Setting
from tbdprof.suite.data import loading
from tbdprof.suite.workload import Concurrent, Config

ALONE = suite.configure(SPEC, batch_size=3, seed=4, options={"actors": 1})
TOGETHER = suite.configure(SPEC, batch_size=3, seed=4, options={"actors": 3})
BUILD: dict[str, Callable[[Config], Workload]] = {
    "torch": lambda config: on_torch.build(SPEC, config),
    "mxnet": lambda config: on_mxnet.build(SPEC, config),
    "tensorflow": lambda config: on_tensorflow.build(SPEC, config),
}
every_framework = pytest.mark.parametrize("framework", BUILD)

RIGHT, LEFT, STAY = 2, 3, 0


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights_of(network: Any) -> dict[str, NDArray[Any]]:
    """Return a network's parameters, whatever the framework."""
    if isinstance(network, torch.nn.Module):
        return {name: value.detach().numpy().copy() for name, value in network.named_parameters()}
    if hasattr(network, "_collect_params_with_prefix"):
        return {name: value.data().asnumpy() for name, value in network._collect_params_with_prefix().items()}
    return {each.path.partition("/")[2]: each.numpy() for each in network.trainable_variables}


def same(ones: dict[str, NDArray[Any]], others: dict[str, NDArray[Any]]) -> bool:
    assert ones.keys() == others.keys()
    return all(np.array_equal(ones[name], others[name]) for name in ones)


# The network.


def test_the_parameters_are_the_sum_over_the_layers() -> None:
    assert [prod(layer.shape) + layer.outputs for layer in LAYERS] == [4_112, 8_224, 663_808, 1_542, 257]
    assert parameters() == SPEC.parameters == PARAMETERS == 677_943


@every_framework
def test_each_framework_has_a_shared_network_and_a_copy_for_each_actor(framework: str) -> None:
    workload = BUILD[framework](TOGETHER)
    networks = [weights_of(network) for network in workload.model]

    assert [sum(each.size for each in network.values()) for network in networks] == 4 * [PARAMETERS]
    assert isinstance(workload, Concurrent)


@every_framework
def test_a_network_begins_with_the_weights_that_were_drawn(framework: str) -> None:
    found = sorted(
        each.ravel().astype(np.float64).sum() for each in weights_of(BUILD[framework](ALONE).model[0]).values()
    )
    drawn = sorted(values.astype(np.float64).sum() for _, values in initial.weights(4))

    assert found == pytest.approx(drawn, rel=1e-6)


def test_initial_weights_lie_within_one_over_the_root_of_the_fan_in() -> None:
    drawn = dict(initial.weights(0))
    bound = 1 / np.sqrt(16 * 4 * 4)

    for name in ("conv2.weight", "conv2.bias"):
        assert np.abs(drawn[name]).max() <= bound
    assert np.abs(drawn["conv2.weight"]).max() > 0.99 * bound
    assert not np.array_equal(drawn["conv1.weight"], dict(initial.weights(1))["conv1.weight"])


# How actors train.


@every_framework
def test_a_step_is_an_update_and_consumes_its_environment_steps(framework: str) -> None:
    workload = BUILD[framework](ALONE)
    before = weights_of(workload.model[0])

    assert workload.step() == 3
    after = weights_of(workload.model[0])
    assert not any(np.array_equal(after[name], before[name]) for name in after)
    workload.close()


@every_framework
def test_one_actor_trains_the_same_bits_from_the_same_seed(framework: str) -> None:
    ones, others = BUILD[framework](ALONE), BUILD[framework](ALONE)
    for _ in range(3):
        ones.step()
        others.step()

    assert same(weights_of(ones.model[0]), weights_of(others.model[0]))
    other_seed = BUILD[framework](suite.configure(SPEC, batch_size=3, seed=5, options={"actors": 1}))
    assert not same(weights_of(ones.model[0]), weights_of(other_seed.model[0]))


@every_framework
def test_a_copy_stays_what_it_was_until_its_actor_copies_again(framework: str) -> None:
    workload = BUILD[framework](ALONE)
    shared, copy = workload.model
    workload.step()
    before = weights_of(copy)

    assert not same(weights_of(shared), before)
    workload.agents[0].copy_shared()
    assert same(weights_of(shared), weights_of(copy))


@every_framework
def test_several_actors_train_what_they_share(framework: str) -> None:
    workload = BUILD[framework](TOGETHER)
    taken = [workload.step() for _ in range(12)]
    workload.pause()
    paused = weights_of(workload.model[0])
    time.sleep(0.05)

    assert taken == 12 * [3]
    assert same(weights_of(workload.model[0]), paused)
    for _ in range(3 + 1):  # up to three were finished before
        workload.step()
    workload.close()
    assert not same(weights_of(workload.model[0]), paused)
    assert all(np.isfinite(each).all() for each in weights_of(workload.model[0]).values())
    assert not any(thread.name.startswith("actor") for thread in threading.enumerate())


@every_framework
def test_an_actor_goes_on_from_the_parameters_and_mean_squares_of_another(framework: str) -> None:
    """An update of one actor and one of another leave the same bits as two of one."""
    config = suite.configure(SPEC, batch_size=3, seed=4, options={"actors": 2})
    player, rollouts, left = Player(Synthetic(np.random.default_rng(0)), 3, 0, 0), [], []
    for order in ((0, 1), (0, 0)):
        workload = BUILD[framework](config)
        for place, number in enumerate(order):
            agent = workload.agents[number]
            agent.copy_shared()
            if len(rollouts) <= place:
                rollouts.append(player.play(agent.evaluate))
            agent.learn(rollouts[place])()
        left.append(weights_of(workload.model[0]))

    assert same(*left)


@every_framework
def test_an_environment_that_fails_ends_the_step_with_its_error(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Synthetic, action: int) -> object:
        raise OSError("the console caught fire")

    monkeypatch.setattr(Synthetic, "step", fail)
    for config in (ALONE, TOGETHER):
        workload = BUILD[framework](config)
        with pytest.raises(OSError, match="caught fire"):
            workload.step()
        workload.close()


def test_mxnet_refuses_what_it_cannot_run() -> None:
    with pytest.raises(UsageError, match="fp32 or fp64"):
        on_mxnet.build(SPEC, suite.configure(SPEC, precision="bf16"))


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_half_precision_trains(framework: str) -> None:
    workload = BUILD[framework](suite.configure(SPEC, precision="bf16", options={"actors": 1}))

    assert workload.step() == 5
    assert all(np.isfinite(each).all() for each in weights_of(workload.model[0]).values())


# How they play.


def test_returns_are_discounted_to_the_end_of_the_episode_or_the_last_value() -> None:
    assert discounted([0.0, 0.0, 1.0], [False] * 3, 10.0) == pytest.approx([0.99**2 * 10.9, 0.99 * 10.9, 10.9])
    assert discounted([0.0, -1.0, 0.0], [False, True, False], 10.0) == pytest.approx([-0.99, -1.0, 9.9])


def test_actions_are_drawn_by_the_policy() -> None:
    logits = np.log(np.array([0.1, 0.6, 0.3])) + 50.0
    random = np.random.default_rng(0)
    drawn = np.bincount([chosen(logits, random) for _ in range(4000)], minlength=3) / 4000

    assert drawn == pytest.approx([0.1, 0.6, 0.3], abs=0.03)


def test_a_player_goes_on_where_it_was_and_over_the_ends_of_episodes() -> None:
    asked: list[NDArray[np.float32]] = []

    def evaluate(observations: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        asked.append(observations)
        return np.array([[50.0, 0, 0, 0, 0, 0]]), np.array([0.5])  # stay

    random = np.random.default_rng(0)
    columns = [int(random.integers(6)) for _ in range(2)]
    player = Player(Catch(np.random.default_rng(0)), 4, 0, 0)
    first, second = player.play(evaluate), player.play(evaluate)

    assert [each.shape for each in (first.observations, first.actions, first.returns)] == [(4, 4, 84, 84), (4,), (4,)]
    assert len(asked) == 2 * (4 + 1)
    assert all(np.array_equal(one[0], other) for one, other in zip(asked[:4], first.observations, strict=True))
    assert np.array_equal(asked[4][0], second.observations[0])
    reward = 1.0 if columns[0] == 3 else -1.0  # at the fifth step, and then the next episode
    assert first.returns == pytest.approx([0.99**n * 0.5 for n in (4, 3, 2, 1)])
    assert second.returns == pytest.approx([reward, *(0.99**n * 0.5 for n in (3, 2, 1))])
    assert first.actions.tolist() == [0, 0, 0, 0]


def test_synthetic_frames_are_the_seeds_and_reward_as_rarely_as_pong() -> None:
    one, other = (Synthetic(np.random.default_rng((1, 3, 0))) for _ in range(2))
    third = Synthetic(np.random.default_rng((1, 3, 1)))
    seen = one.reset()
    rewards, ends = [], 0
    for _ in range(43 * 200):
        _, reward, over = one.step(0)
        rewards.append(reward)
        if over:
            ends += 1
            one.reset()

    assert (seen.shape, seen.dtype) == ((4, 84, 84), np.uint8)
    assert np.array_equal(seen, other.reset())
    assert not np.array_equal(seen, third.reset())
    assert set(rewards) == {-1.0, 0.0, 1.0}
    assert 150 < np.count_nonzero(rewards) < 250
    assert ends == pytest.approx(rewards.count(-1.0) // 21, abs=1)


def test_the_last_frame_of_an_observation_is_the_third_of_the_next() -> None:
    game = Synthetic(np.random.default_rng(0))
    seen = game.reset().copy()
    for _ in range(40):
        after, _, _ = game.step(0)
        assert np.array_equal(after[:3], seen[1:])
        seen = after.copy()


def test_observations_become_numbers_from_0_to_1() -> None:
    assert as_input(np.array([0, 51, 255], np.uint8)).tolist() == pytest.approx([0.0, 0.2, 1.0])


def test_what_falls_is_caught_by_going_there() -> None:
    """With actions right and left of Pong; another column each episode, and the picture shows where."""
    game = Catch(np.random.default_rng(0))
    for _ in range(20):
        frames = game.reset()
        assert all(np.array_equal(frame, frames[0]) for frame in frames)
        column, paddle = int(frames[0][0].argmax()) // 14, int(frames[0][-1].argmax()) // 14
        assert paddle == 3
        rewards = []
        for _ in range(catch.FALLS):
            towards = RIGHT if column > paddle else LEFT if column < paddle else STAY
            paddle += {RIGHT: 1, LEFT: -1, STAY: 0}[towards]
            frames, reward, over = game.step(towards)
            rewards.append(reward)
        assert rewards == [0.0] * (catch.FALLS - 1) + [1.0]
        assert over


def test_what_falls_elsewhere_is_missed_and_the_paddle_stays_on_the_board() -> None:
    game = Catch(np.random.default_rng(2))
    results = []
    for _ in range(50):
        frames = game.reset()
        at_the_left = int(frames[0][0].argmax()) == 0
        for _ in range(catch.FALLS):
            frames, reward, _ = game.step(LEFT)
        assert frames[-1][-1][0] > 0
        results.append((at_the_left, reward))

    assert set(results) == {(True, 1.0), (False, -1.0)}


class Slow:
    def reset(self) -> Any:
        time.sleep(0.02)

    def step(self, action: int) -> Any:
        time.sleep(0.02)


def test_the_time_of_an_environment_is_waiting_for_data_shared_by_all_actors() -> None:
    before = loading.waited.seconds
    game = Timed(Slow(), actors=4)
    game.reset()
    game.step(0)
    waited = loading.waited.seconds - before

    assert waited >= 0.04 / 4
    assert waited < 0.04  # unless each of the two took four times as long as it slept


def test_synthetic_frames_are_no_waiting_and_every_actor_has_its_own() -> None:
    found = environments.environments(TOGETHER)

    assert [type(each) for each in found] == 3 * [Synthetic]
    first = [each.reset() for each in found]
    assert not np.array_equal(first[0], first[1])


def test_a_folder_is_refused_where_the_emulator_is_meant() -> None:
    with pytest.raises(UsageError, match="give --data atari or synthetic, not "):
        on_torch.build(SPEC, suite.configure(SPEC, data=Path("frames")))


# How learning is judged.


class Guide:
    """A workload that plays by the picture, or at random; it says it is worth 0."""

    def __init__(self, config: Config, *, knows: bool) -> None:
        self.config, self.knows = config, knows
        self.steps, self.closed = 0, False

    def step(self) -> float:
        self.steps += 1
        return 5.0

    def close(self) -> None:
        self.closed = True

    def predict(self, inputs: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
        logits = np.zeros((len(inputs), 6))
        for row, frames in zip(logits, inputs, strict=True):
            column = int(frames[-1][:-14].max(0).argmax()) // 14
            paddle = int((frames[-1][-1] > 0).argmax()) // 14
            if self.knows:
                row[RIGHT if column > paddle else LEFT if column < paddle else STAY] = 50.0
        return logits, np.zeros(len(inputs))


@pytest.mark.parametrize("knows", [True, False])
def test_a_check_plays_held_out_episodes_and_passes_who_knows_the_game(knows: bool) -> None:
    built: list[Guide] = []
    progress: list[tuple[int, int]] = []

    def build(config: Config) -> Any:
        built.append(Guide(config, knows=knows))
        return built[-1]

    learned = learning.run(build, Setting(seed=3, steps=learning.EVERY + 7), lambda *step: progress.append(step))

    assert [point.step for point in learned.curve] == [0, learning.EVERY, learning.EVERY + 7]
    assert (built[0].steps, built[0].closed, len(progress)) == (learning.EVERY + 7, True, learning.EVERY + 7)
    assert built[0].config.data == environments.CATCH
    assert learned.passed is knows
    assert learned.last.quality == pytest.approx(1.0 if knows else CHANCE, abs=0.0 if knows else 0.3)
    if knows:  # every return is the discounted 1, of which the value 0 is half the square off
        squares = [0.99 ** (2 * left) for left in range(catch.FALLS)]
        assert learned.last.loss == pytest.approx(sum(squares) / catch.FALLS / 2)


def test_who_catches_no_more_than_is_missed_does_not_pass() -> None:
    assert pytest.approx(1 / 6 - 5 / 6) == CHANCE
    assert not learning.passes((Point(0, 0.0, 0.0, 1.0), Point(9, 1.0, 0.0, 0.0)))
    assert learning.passes((Point(0, 0.0, 0.0, CHANCE), Point(9, 1.0, 0.0, 0.02)))
