"""Owners read together lie where they lie if each is read by itself, whatever changed since they were found."""

import gc
import weakref
from typing import Any

import pytest

from tbdprof.hooks.patches import Wrap

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
owners = pytest.importorskip("tbdprof.hooks.on_tensorflow.watch.owners")
readings = pytest.importorskip("tbdprof.hooks.on_tensorflow.watch.readings")


@pytest.fixture
def model() -> Any:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, name="dense"), keras.layers.BatchNormalization()])


@pytest.fixture
def optimizer(model: Any) -> Any:
    made = keras.optimizers.Adam()
    made.build(model.trainable_variables)
    return made


@pytest.fixture
def watched(model: Any, optimizer: Any) -> Any:
    watched = owners.Watched()
    watched.add_model(model)
    watched.add_optimizer(optimizer)
    return watched


def by_name(rows: Any) -> dict[str, Any]:
    return {row.name: row for row in rows()}


def test_both_ways_to_read_give_the_same(watched: Any, model: Any) -> None:
    kept = tf.zeros((2, 2))
    watched.add_inputs([kept])
    read = readings.Readings(watched)
    for _ in range(2):
        assert by_name(read.together()) == by_name(read.one_by_one(owners.no_mark))
        model.layers[0].kernel.assign(tf.ones((3, 4)))  # now it lies elsewhere
    assert {"dense.kernel", "dense.kernel/velocity", "batch_normalization.gamma", "input0"} <= by_name(
        read.together()
    ).keys()


def test_a_reading_holds_where_things_lay_then(watched: Any, model: Any) -> None:
    read, kernel = readings.Readings(watched), model.layers[0].kernel
    before, old = read.together(), kernel.value.read_value()  # held, so that the next value lies elsewhere
    kernel.assign(tf.ones((3, 4)))
    assert by_name(before)["dense.kernel"].address == owners.address_of(old)
    assert by_name(read.together())["dense.kernel"].address != owners.address_of(old)


def test_owners_are_found_again_only_if_layers_or_optimizers_were_given_something(
    watched: Any, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    listed = owners.listed
    monkeypatch.setattr(owners, "listed", lambda watched: found.append(1) or listed(watched))
    read, other = readings.Readings(watched), keras.layers.Dense(2, name="late")
    other.build((None, 4))
    for _ in range(3):
        read.together()
    assert len(found) == 1

    model.add(other)  # its variables existed before
    assert "late.kernel" in by_name(read.together())
    second = keras.optimizers.SGD(momentum=0.9)
    second.build(other.trainable_variables)
    watched.add_optimizer(second)
    assert "late.kernel/momentum" in by_name(read.together())
    assert len(found) == 3


def test_plain_modules_are_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = tf.Variable(tf.zeros((2, 2)))

    module, watched = Plain(), owners.Watched()
    watched.add_model(module)
    read = readings.Readings(watched)
    read.together()
    module.second = tf.Variable(tf.zeros((2, 2)))
    assert by_name(read.together()).keys() == {"first", "second"}


def test_a_variable_that_copies_itself_is_read_by_itself_and_goes_on_copying(watched: Any, model: Any) -> None:
    read, kernel = readings.Readings(watched), model.layers[0].kernel
    read.together()
    kernel.value.scatter_nd_update([[0]], tf.ones((1, 4)))
    assert by_name(read.together())["dense.kernel"] == by_name(read.one_by_one(owners.no_mark))["dense.kernel"]
    assert by_name(read.together())["dense.kernel"] == by_name(read.one_by_one(owners.no_mark))["dense.kernel"]
    assert owners.copies_when_read(kernel.value)


def test_no_variable_is_kept_alive(watched: Any) -> None:
    late = tf.Variable(tf.zeros((2, 2)))
    watched.add_inputs([late])
    read, gone = readings.Readings(watched), weakref.ref(late)
    assert "input0" in by_name(read.together())
    del late
    gc.collect()
    assert gone() is None
    assert "input0" not in by_name(read.together())


def test_other_codes_wrapper_of_ours_stays() -> None:
    class Owner:
        def called(self) -> int:
            return 1

    own = Owner.called
    wrap = Wrap(Owner, "called", lambda original: lambda thing: original(thing) + 1)
    wrap.put()
    ours = Owner.called
    Owner.called = lambda thing: 10 * ours(thing)  # type: ignore[method-assign]
    for _ in range(2):
        wrap.take()
        assert Owner().called() == 20
        wrap.put()
    Owner.called = ours  # type: ignore[method-assign]
    wrap.take()
    assert Owner.called is own
