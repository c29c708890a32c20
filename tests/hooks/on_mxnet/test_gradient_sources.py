"""Which operator a gradient belongs to, and which node of a graph an operator is, on made-up requests."""

import importlib.util

import pytest

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("mxnet is not installed", allow_module_level=True)

import numpy as np

vars(np).setdefault("bool", bool)  # MXNet reads it

import mxnet as mx  # noqa: E402
from mxnet.gluon import nn  # noqa: E402

from tbdprof.hooks.on_mxnet.kernels.gradient_sources import sources  # noqa: E402
from tbdprof.hooks.on_mxnet.kernels.spans import contradicts  # noqa: E402
from tbdprof.hooks.on_mxnet.session.calls import Array, GraphCall  # noqa: E402
from tbdprof.hooks.on_mxnet.session.engine import Push  # noqa: E402
from tbdprof.hooks.on_mxnet.session.graphs import FUSED, Graphs, Node, align, place  # noqa: E402

IMAGE, WEIGHT1, WEIGHT2, MAP1, MAP2, SPACE, GRADIENT1, GRADIENT2, OWN1, OWN2 = range(10)


def pushes(*asked: tuple[str, tuple[int, ...], tuple[int, ...]]) -> list[Push]:
    return [Push(number, name, 1, reads, writes, None) for number, (name, reads, writes) in enumerate(asked)]


def followed(asked: list[Push]) -> dict[int, int]:
    names = {push.number: push.name for push in asked}
    return sources(
        asked,
        lambda push: names[push.number].startswith("_backward_"),
        lambda push: True,
        lambda one, other: one.number == other.number,
    )


def test_gradients_are_followed_whatever_their_order() -> None:
    """Two convolutions of one image, whose gradients run in the order of the forward pass."""
    asked = pushes(
        ("Convolution", (IMAGE, WEIGHT1), (MAP1, SPACE)),
        ("Convolution", (IMAGE, WEIGHT2), (MAP2, SPACE)),
        ("_backward_Convolution", (IMAGE, WEIGHT1, GRADIENT1), (OWN1, SPACE)),
        ("_backward_Convolution", (IMAGE, WEIGHT2, GRADIENT2), (OWN2, SPACE)),
    )

    assert followed(asked) == {2: 0, 3: 1}


def test_a_gradient_that_fits_two_operators_is_given_to_neither() -> None:
    asked = pushes(
        ("Convolution", (IMAGE, WEIGHT1), (MAP1,)),
        ("Convolution", (IMAGE, WEIGHT1), (MAP2,)),
        ("_backward_Convolution", (IMAGE, WEIGHT1, GRADIENT1), (OWN1,)),
    )

    assert followed(asked) == {}


def test_a_map_whose_place_was_used_again_is_not_mistaken_for_the_later_one() -> None:
    asked = pushes(
        ("relu", (IMAGE,), (MAP1,)),
        ("relu", (MAP1,), (MAP2,)),
        ("relu", (MAP2,), (MAP1,)),
        ("_backward_relu", (MAP1, GRADIENT1), (OWN1,)),
    )

    assert followed(asked) == {3: 2}


@pytest.mark.parametrize("end", [[], [("DeleteVariable", (), (MAP2,)), ("ones", (), (MAP2,))]], ids=["kept", "deleted"])
def test_a_loss_that_nothing_reads_is_no_workspace(end: list[tuple[str, tuple[int, ...], tuple[int, ...]]]) -> None:
    """Only the ones that the backward pass begins with lead from the gradient to the operator that made the loss."""
    asked = pushes(
        ("exp", (IMAGE,), (MAP1, SPACE)),
        ("mean", (MAP1,), (MAP2, SPACE)),
        ("SetValueOp", (), (GRADIENT1,)),
        ("_backward_mean", (GRADIENT1,), (OWN1,)),
        *end,
    )

    found = sources(asked, lambda push: push.number in (2, 3), lambda push: True, lambda one, other: one is other)

    assert found == {3: 1}


def test_the_gradient_of_a_part_of_a_fused_operator_is_the_fused_ones() -> None:
    asked = pushes(
        (FUSED, (MAP1, IMAGE), (MAP2,)),
        ("_backward_Activation", (MAP2, GRADIENT1), (OWN1,)),
    )

    assert followed(asked) == {1: 0}


@pytest.mark.parametrize("name", ["Reorder", "Reorder2Default"])
def test_a_weight_whose_numbers_are_put_in_another_order_stays_the_same_value(name: str) -> None:
    asked = pushes(
        ("Convolution", (IMAGE, WEIGHT1), (MAP1,)),
        (name, (), (WEIGHT1,)),
        ("Convolution", (IMAGE, WEIGHT2), (MAP2,)),
        ("_backward_Convolution", (IMAGE, WEIGHT1, GRADIENT1), (OWN1,)),
    )

    assert followed(asked) == {3: 0}


def nodes(*operators: str) -> list[Node]:
    return [Node(operator, f"{operator}{number}", {}, (), (), ()) for number, operator in enumerate(operators)]


def test_what_a_graph_puts_out_twice_it_copies() -> None:
    """As an LSTM's cell puts out its state, and that again as the first of its states."""
    x = mx.sym.var("x")
    output, other = mx.sym.relu(x, name="output"), mx.sym.tanh(x, name="other")
    call = GraphCall(nn.HybridSequential(), mx.sym.Group([output, output, other]), (Array((2, 3), "float32", True),))
    found = Graphs().nodes(call)

    assert [node.operator for node in found] == ["relu", "_copy", "tanh"]
    assert found[1].inputs == found[1].outputs == found[0].outputs
    assert align(["relu", "_copy", "tanh"], found) == found


def test_a_graph_is_matched_operator_by_operator_past_what_costs_nothing() -> None:
    graph = nodes("Convolution", "Flatten", "FullyConnected", "Reshape")

    assert align(["Convolution", "FullyConnected"], graph) == [graph[0], graph[2]]
    assert align(["Convolution", "Flatten", "FullyConnected", "Reshape"], graph) == graph


def test_what_one_fused_operator_was_made_of_is_what_is_left_of_its_part() -> None:
    """As at the end of a residual block, with a rectifier before it that stands alone."""
    graph = nodes("Convolution", "Activation", "Convolution", "elemwise_add", "Activation", "Reshape", "FullyConnected")
    asked = ["Convolution", "Activation", "Convolution", FUSED, "FullyConnected"]

    assert place(asked, graph) == [(graph[0],), (graph[1],), (graph[2],), (graph[3], graph[4]), (graph[6],)]


def test_what_cannot_be_distinguished_from_a_fused_operators_parts_is_left_open() -> None:
    graph = nodes("Convolution", "tanh", "sigmoid", "tanh", "elemwise_mul", "Convolution")

    assert place(["Convolution", "tanh", FUSED, "Convolution"], graph) == [
        (graph[0],),
        (),
        tuple(graph[1:5]),
        (graph[5],),
    ]
    assert place(["Convolution", FUSED, FUSED, "Convolution"], graph) == [(graph[0],), (), (), (graph[5],)]


def test_a_fused_graph_whose_other_operators_stand_in_another_order_is_not_matched() -> None:
    graph = nodes("Convolution", "Pooling", "tanh", "tanh")

    assert place(["Pooling", "Convolution", FUSED], graph) is None


def test_a_request_that_does_not_touch_an_operators_parameters_is_not_that_operator() -> None:
    node = Node("Convolution", "one", {}, (), (), ("one_weight",))
    push = pushes(("Convolution", (IMAGE, WEIGHT1), (MAP1,)))[0]

    assert not contradicts(push, [node], {"one_weight": WEIGHT1})
    assert contradicts(push, [node], {"one_weight": WEIGHT2})
    assert not contradicts(push, [], {"one_weight": WEIGHT2})


@pytest.mark.parametrize("asked", [["FullyConnected"], ["Convolution"], ["Convolution", "dot", "FullyConnected"]])
def test_another_graph_than_what_ran_is_not_matched(asked: list[str]) -> None:
    assert align(asked, nodes("Convolution", "Flatten", "FullyConnected")) is None
