"""What Keras' optimizers keep, by the names Keras gave it, and what a recording keeps of its settings."""

from typing import Any

import pytest

keras = pytest.importorskip("keras")
owners = pytest.importorskip("tbdprof.hooks.on_tensorflow.watch.owners")
facts = pytest.importorskip("tbdprof.hooks.on_tensorflow.facts")


class Own(keras.optimizers.Optimizer):  # type: ignore[misc]
    """Keeps the last gradients, under a name that does not show whose."""

    def build(self, variables: list[Any]) -> None:
        super().build(variables)
        self._lasts = [self.add_variable(each.shape, name="kept") for each in variables]


def model() -> Any:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, name="dense")])


def kept(optimizer: Any) -> list[str]:
    optimizer.build(model().trainable_variables)
    return [slot for slot, variable, _ in owners.slots(optimizer) if variable is not None][::2]


@pytest.mark.parametrize(
    ("optimizer", "slots"),
    [
        (keras.optimizers.SGD(momentum=0.9), {"momentum"}),
        (keras.optimizers.Adam(amsgrad=True), {"momentum", "velocity", "velocity_hat"}),
        (keras.optimizers.RMSprop(centered=True), {"velocity", "average_gradient"}),
        (Own(0.1), {"lasts"}),
    ],
)
def test_state_has_the_name_that_keras_gave_it_else_the_attribute_it_is_in(optimizer: Any, slots: set[str]) -> None:
    assert set(kept(optimizer)) == slots


def test_what_an_optimizer_keeps_once_for_all_weights_has_no_name_of_a_layer() -> None:
    net, watched = model(), owners.Watched()
    optimizer = keras.optimizers.Adam(name="adam")
    optimizer.build(net.trainable_variables)
    watched.add_model(net)
    watched.add_optimizer(optimizer)

    names = {each.name for each in owners.listed(watched) if each.read() is not None}
    assert {"adam/iteration", "dense.kernel/velocity"} <= names


def test_the_policy_by_which_keras_casts_is_reported() -> None:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        settings = facts.settings()
    finally:
        keras.config.set_dtype_policy(before)

    assert settings["keras dtype policy"] == "mixed_bfloat16"
    assert facts.settings()["keras dtype policy"] == before.name
