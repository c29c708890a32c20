"""What is known of operators and kernels in compiled regions, on regions that are written out."""

import sys
from types import ModuleType
from typing import Any

import pytest

from tbdprof.hooks.on_torch.session.compiled import describe
from tbdprof.hooks.on_torch.session.events import ENGINE_NODE, Region, Scope, Weight

# Addresses of an attention's weights, of what all three read, and of the gradients of what they return.
WEIGHTS = {10: Weight("q", 16), 11: Weight("k", 16), 12: Weight("v", 8)}
GIVEN, OF_Q, OF_K, OF_V = 20, 30, 31, 32
OUT = 90


def region(name: str, parent: Region | None = None, addresses: tuple[int, ...] = (), **of_product: int) -> Region:
    shapes = [[of_product.get("rows", 4), 3], [3, of_product.get("columns", 4)]]
    return Region(name, Scope.FUNCTION, 1, 0, 1, -1, parent, shapes=shapes, addresses=addresses)


def forward() -> list[Region]:
    graph = region("CompiledFunction")
    return [graph, *(region("aten::addmm", graph, (40 + each, GIVEN, each, OUT)) for each in WEIGHTS)]


def backward(*products: tuple[int, ...], columns: int = 4) -> list[Region]:
    node = region(f"{ENGINE_NODE}: CompiledFunctionBackward")
    graph = region("CompiledFunctionBackward", node)
    return [node, graph, *(region("aten::mm", graph, each, columns=columns) for each in products)]


def layers(*regions: Region) -> list[str | None]:
    describe(regions, WEIGHTS)
    return [each.layer for each in regions if each.name.startswith("aten::")]


def test_an_operator_is_in_the_layer_whose_weight_it_reads() -> None:
    assert layers(*forward()) == ["q", "k", "v"]
    assert layers(region("CompiledFunction"), region("aten::addmm", None, (GIVEN, 10))) == [None]  # beside the graph
    both = region("CompiledFunction")
    assert layers(both, region("aten::cat", both, (10, 11))) == [None]


def test_a_weights_gradient_is_in_the_layer_whose_gradient_and_activation_it_reads() -> None:
    gradients = (OF_Q, GIVEN, OUT), (OF_Q, 10, OUT), (OF_K, 11, OUT), (OF_K, GIVEN, OUT)
    assert layers(*forward(), *backward(*gradients))[3:] == ["q", "q", "k", "k"]


def test_an_activation_that_one_layer_of_the_right_size_read_is_enough() -> None:
    assert layers(*forward(), *backward((OF_V, GIVEN, OUT), columns=2))[3:] == ["v"]


def test_where_several_layers_are_possible_none_is_named() -> None:
    assert layers(*forward(), *backward((OF_Q, GIVEN, OUT)))[3:] == [None]  # `q` and `k` have one size
    assert layers(*forward(), *backward((OF_Q, 77, OUT)))[3:] == [None]


def test_the_output_of_another_product_is_not_what_it_reads() -> None:
    assert layers(*forward(), *backward((OF_Q, 10, OF_K), (OF_K, 77, OUT)))[3:] == ["q", None]


def test_addresses_of_the_step_before_are_forgotten() -> None:
    graph = region("CompiledFunction")
    another = [graph, region("aten::addmm", graph, (40, 21, 10, OUT))]
    before = *forward(), *backward((OF_Q, 10, OUT))
    assert layers(*before, *another, *backward((OF_V, GIVEN, OUT), columns=2))[4:] == ["q", None]


def test_a_graph_is_called_by_the_kernels_that_were_fused_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class CompiledFxGraph:
        _fx_graph_cache_key = "fabc"
        source_code = "cpp_fused_add_relu_0 = async_compile.cpp(\ntriton_poi_fused_mul_1 = async_compile.triton("

    module: Any = ModuleType("output_code")
    module.CompiledFxGraph = CompiledFxGraph
    monkeypatch.setitem(sys.modules, "torch._inductor.output_code", module)
    compiled, kept = region("## Call CompiledFxGraph fabc ##"), CompiledFxGraph()
    other = region("## Call CompiledFxGraph fxyz ##")
    describe([compiled, other], {})
    assert [each.operators for each in compiled.fused] == [("add", "relu"), ("mul",)]
    assert (compiled.shown_name, kept.source_code[:3]) == ("cpp_fused_add_relu_0, triton_poi_fused_mul_1", "cpp")
    assert other.shown_name == other.name


def test_the_forward_and_the_backward_pass_of_a_compiled_step_are_told_apart() -> None:
    step = region("Torch-Compiled Region: 0/0")
    step.holds_engine = True
    graph = region("CompiledFunction", step)
    products = [region("aten::addmm", graph, (40 + each, GIVEN, each, OUT)) for each in WEIGHTS]
    node, *inside = backward((OF_Q, 10, OUT), (OF_Q, GIVEN, OUT))
    node.parent = step
    update = region("Torch-Compiled Region: 1/0", step)
    taken = region("aten::add", update, (OF_V, 11, OUT))
    assert layers(step, graph, *products, node, *inside, update, taken)[3:] == ["q", "q", "k"]
