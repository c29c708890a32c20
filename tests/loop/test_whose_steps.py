"""Which steps end a training step, where a script has several optimizers, at once or one after another."""

import pytest

from tbdprof.loop.whose_steps import PATIENCE, WhoseSteps


class Weight:
    """A weight."""


class Optimizer:
    """As torch's: it says which weights it updates."""

    def __init__(self, *weights: Weight) -> None:
        self.param_groups = [{"params": list(weights)}]


class Trainer:
    """As MXNet's."""

    def __init__(self, *weights: Weight) -> None:
        self._params = list(weights)


class Broken:
    """An optimizer that raises where it is looked at."""

    @property
    def param_groups(self) -> object:
        raise RuntimeError


def test_of_optimizers_that_take_turns_the_first_one_counts():
    critic, generator = Optimizer(Weight()), Optimizer(Weight())
    steps = WhoseSteps(critic)
    turns = [critic, generator, generator] * 10

    assert [steps.count(each) for each in turns] == [True, False, False] * 10
    assert steps.ended_by == ""


@pytest.mark.parametrize("kind", [Optimizer, Trainer])
def test_a_new_optimizer_of_the_same_weights_takes_the_place_of_one_that_is_gone(kind: type[Optimizer]):
    weight = Weight()
    steps = WhoseSteps(kind(weight))

    second = kind(Weight(), weight)
    assert [steps.count(second) for _ in range(3)] == [True] * 3
    assert not steps.count(kind(weight))  # the second one is there


def test_an_optimizer_at_the_address_of_one_that_is_gone_is_another_one():
    steps = WhoseSteps(Optimizer(Weight()))
    assert not any(steps.count(Optimizer(Weight())) for _ in range(10))


def test_an_optimizer_of_the_same_weights_takes_the_place_of_one_that_steps_no_longer():
    weight = Weight()
    adam, lbfgs = Optimizer(weight), Optimizer(weight)
    steps = WhoseSteps(adam)

    counted = [steps.count(lbfgs) for _ in range(PATIENCE + 5)]
    assert counted == [False] * PATIENCE + [True] * 5
    assert steps.ended_by == ""


def test_a_training_of_other_weights_ends_the_first_one():
    first, second = Optimizer(Weight()), Optimizer(Weight())
    steps = WhoseSteps(first)
    for _ in range(PATIENCE):
        assert not steps.count(second)
    assert steps.ended_by == ""

    steps.count(second)
    assert steps.ended_by == (
        f"another training followed: other weights were updated in the last {PATIENCE + 1} optimizer steps"
    )


def test_the_longest_turn_of_others_that_was_seen_is_waited_for_twice():
    policy, value = Optimizer(Weight()), Optimizer(Weight())
    steps = WhoseSteps(policy)
    for _ in range(80):
        steps.count(value)
    assert steps.count(policy)
    for _ in range(2 * 80):
        steps.count(value)
    assert steps.ended_by == ""


def test_an_optimizer_that_does_not_say_its_weights_counts_by_itself():
    optimizer = Broken()
    steps = WhoseSteps(optimizer)
    assert steps.count(optimizer)
    assert not steps.count(Broken())
