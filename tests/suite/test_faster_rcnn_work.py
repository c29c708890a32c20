"""What a step of Faster R-CNN computes is a sum over its layers, in each framework, at an odd size."""

import json
from collections.abc import Iterator
from itertools import count
from math import prod

import mxnet as mx
import pytest
import tensorflow as tf
import torch
from torch.utils.flop_counter import FlopCounterMode

from tbdprof import suite
from tbdprof.suite.faster_rcnn import (
    SPEC,
    on_mxnet_network,
    on_tensorflow,
    on_tensorflow_network,
    on_torch,
    on_torch_network,
    targets,
)
from tbdprof.suite.faster_rcnn.architecture import SHARED, layers, places
from tbdprof.suite.faster_rcnn.products import step_flops
from tbdprof.suite.faster_rcnn.regions import ALIGNED_SIDE, image_sides

BEFORE, AFTER, REGIONS = 200, 50, 5
OPTIONS = {"image_size": 75, "proposals_before": BEFORE, "proposals_after": AFTER, "regions": REGIONS}
CONFIG = suite.configure(SPEC, options=OPTIONS)
SIDES = image_sides(75)


@pytest.fixture(scope="module")
def in_torch() -> FlopCounterMode:
    """Return what torch's own counter says of one step."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = on_torch_network.FasterRCNN(BEFORE, AFTER, REGIONS)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    workload = on_torch.Workload(SPEC, CONFIG, model, torch.optim.SGD(trained, lr=0.0), (), iter(()), count())
    example = on_torch.on_device(next(targets.examples(CONFIG)), CONFIG)
    with FlopCounterMode(display=False) as counter:
        workload.update(example)
    torch.set_num_threads(threads)
    return counter


def test_each_layer_is_laid_at_as_many_places_as_torch_lays_it(in_torch: FlopCounterMode) -> None:
    expected = {layer.name: 2 * layer.weights * laid for layer, laid in places(*SIDES, REGIONS)}
    operators = (torch.ops.aten.convolution, torch.ops.aten.addmm)
    counted = in_torch.get_flop_counts()
    found = {name: counted[f"FasterRCNN.{name}"] for name in expected}

    assert len(expected) == len(layers())
    assert {name: sum(of_layer.get(each, 0) for each in operators) for name, of_layer in found.items()} == expected


def test_torch_computes_the_sum(in_torch: FlopCounterMode) -> None:
    assert in_torch.get_total_flops() == step_flops(OPTIONS, "torch")
    regions_products = step_flops(OPTIONS, "torch") - step_flops(OPTIONS)
    assert in_torch.get_flop_counts()["Global"][torch.ops.aten.bmm] == regions_products


def test_tensorflow_computes_the_sum() -> None:
    assert sum(of_graph(tensorflows_graph())) == step_flops(OPTIONS, "tensorflow")


def tensorflows_graph() -> tf.Graph:
    """Return the graph of a loss and its gradients, in which all shapes are known."""
    model = on_tensorflow_network.FasterRCNN(BEFORE, AFTER, REGIONS)
    model.make_weights()
    example = on_tensorflow.on_device(next(targets.examples(CONFIG)), CONFIG)

    def step(example: on_tensorflow.Example) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = on_tensorflow.total_loss(model, example)
        return [loss, *tape.gradient(loss, model.trainable_variables)]

    given = tf.nest.map_structure(lambda value: tf.TensorSpec(value.shape, value.dtype), example)
    return tf.function(step).get_concrete_function(given).graph


def of_graph(graph: tf.Graph) -> Iterator[int]:
    """Yield the FLOPs of each product that the results of a graph are made of."""
    seen, left = set(), [tensor.op for tensor in graph.outputs]
    while left:
        operator = left.pop()
        if operator.name not in seen:
            seen.add(operator.name)
            left += [tensor.op for tensor in operator.inputs]
            yield 2 * tensorflow_macs(operator)


def tensorflow_macs(operator: tf.Operation) -> int:
    """Return the multiply-accumulates of an operator, 0 where it is no product."""
    taken, made = [list(tensor.shape) for tensor in operator.inputs], list(operator.outputs[0].shape)
    match operator.type:
        case "Conv2D":
            return prod(made) * prod(taken[1][:3])
        case "Conv2DBackpropInput":
            return prod(taken[2]) * prod(taken[1][:3])
        case "Conv2DBackpropFilter":
            return prod(taken[2]) * prod(made[:3])
        case "MatMul":
            return prod(made) * taken[0][0 if operator.get_attr("transpose_a") else 1]
        case "BatchMatMulV2":
            return prod(made) * taken[0][-2 if operator.get_attr("adj_x") else -1]
        case "Einsum" if len(taken) == 2:
            one, other = operator.get_attr("equation").decode().split("->")[0].split(",")
            return prod({**dict(zip(one, taken[0], strict=True)), **dict(zip(other, taken[1], strict=True))}.values())
    assert not any(word in operator.type for word in ("Conv", "MatMul"))
    return 0


def test_mxnet_computes_the_sum() -> None:
    assert mxnet_flops(on_mxnet_network.FasterRCNN(BEFORE, AFTER, REGIONS)) == step_flops(OPTIONS, "mxnet")


def test_a_stage_that_is_trained_after_all_is_noticed() -> None:
    model = on_mxnet_network.FasterRCNN(BEFORE, AFTER, REGIONS)
    model.layer1.collect_params(".*weight$").setattr("grad_req", "write")
    at = {layer.name: layer.weights * laid for layer, laid in places(*SIDES, REGIONS)}
    of_stage = sum(macs for name, macs in at.items() if name.startswith("layer1."))
    to_weights_alone = at["layer1.0.conv1"] + at["layer1.0.downsample.0"]  # the stem is not trained yet
    handed = at["layer2.0.conv1"] + at["layer2.0.downsample.0"]

    assert mxnet_flops(model) - step_flops(OPTIONS, "mxnet") == 2 * (2 * of_stage - to_weights_alone + handed)


def mxnet_flops(model: on_mxnet_network.FasterRCNN) -> int:
    """Return the FLOPs of MXNet's own graphs of the layers and, by what is trained in them, of their gradients."""
    maps = model.maps(mx.sym.var("images"))
    features = model.avgpool(model.layer4(mx.sym.var("regions")))
    trained = {name for name, each in model.collect_params().items() if each.grad_req != "null"}
    of_maps = of_symbol(mx.sym.Group([maps, *model.proposals(maps)]), trained, images=(1, 3, *SIDES))
    of_regions = of_symbol(
        mx.sym.Group([model.scores(features), model.deltas(features)]),
        trained | {"regions"},  # whose gradient goes back to the shared maps
        regions=(REGIONS, SHARED, ALIGNED_SIDE, ALIGNED_SIDE),
    )
    return 2 * (sum(of_maps) + sum(of_regions))


def of_symbol(symbol: mx.sym.Symbol, trained: set[str], **given: tuple[int, ...]) -> Iterator[int]:
    """Yield the multiply-accumulates of each product: forward, and of what its gradients are wanted for."""
    nodes = json.loads(symbol.tojson())["nodes"]
    inner = symbol.get_internals()
    shapes = dict(zip(inner.list_outputs(), inner.infer_shape(**given)[1], strict=True))
    wanted: list[bool] = []  # of each node, whether anything it is made of is trained
    for node in nodes:
        taken = [place for place, *_ in node["inputs"]]
        wanted.append(node["name"] in trained or any(wanted[place] for place in taken))
        if node["op"] in ("Convolution", "FullyConnected"):
            weight, made = shapes[nodes[taken[1]]["name"]], shapes[f"{node['name']}_output"]
            yield prod(weight) * prod(made) // made[1] * (1 + sum(wanted[place] for place in taken[:2]))


def test_what_interpolates_regions_depends_on_the_framework() -> None:
    """5 × 7 points: a region's 14 × 14 are made of 5 × 14 by torch, of 14 × 7 by TensorFlow, forward and backward."""
    of_torch, of_tensorflow, of_mxnet = (
        step_flops(OPTIONS, framework) - step_flops(OPTIONS) for framework in ("torch", "tensorflow", "mxnet")
    )

    assert of_torch == 2 * 2 * REGIONS * 1024 * (5 * 14 * 7 + 14 * 14 * 5)
    assert of_tensorflow == 2 * 2 * REGIONS * 1024 * (14 * 7 * 5 + 14 * 14 * 7)
    assert of_mxnet == 0
