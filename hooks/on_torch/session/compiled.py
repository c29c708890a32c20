"""What a compiler merged: the layers of operators in compiled regions, and the kernels it fused.

No module is called inside a compiled region, and the compiler keeps no names of layers. So an operator belongs to the
layer whose weight it reads. In the backward pass, the product that makes a weight's gradient reads no weight: it reads
the gradient that the layer's other product reads, and the activation that the layer read in the forward pass, and what
it makes is as large as the weight. Where these leave more than one layer, or none, nothing is said.
"""

import gc
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tbdprof.hooks.on_torch.session.events import Region, Scope, Weight, surroundings

_GRAPH = re.compile(r"## Call CompiledFxGraph (\w+) ##")
_KERNEL = re.compile(r"^(\w*fused_\w+) = async_compile", re.MULTILINE)
_PRODUCT = "aten::mm"
_READS = {_PRODUCT: 2, "aten::bmm": 2, "aten::addmm": 3, "aten::baddbmm": 3}  # tensors; what follows is the output
_Readers = defaultdict[int, set[str]]  # address -> the layers that read it


def describe(regions: Sequence[Region], weights: Mapping[int, Weight]) -> None:
    """Fill in layers and fused kernels; `regions` are in order of their start, `weights` has layers by address."""
    compiled = [region for region in regions if region.is_compiled]
    if not compiled:
        return
    _name_graphs(compiled)
    _name_layers([region for region in regions if _is_of_graph(region)], weights)


def _is_of_graph(region: Region) -> bool:
    return region.scope is Scope.FUNCTION and region.parent is not None and region.parent.is_compiled


def _name_graphs(compiled: Iterable[Region]) -> None:
    """Name regions of inductor by the kernels that it fused: on a CPU, their time is that of the region itself."""
    graphs = [(region, found[1]) for region in compiled if (found := _GRAPH.match(region.name))]
    kernels = _fused() if graphs else {}
    for region, key in graphs:
        region.fused = kernels.get(key, ())


def _fused() -> dict[str, tuple[str, ...]]:
    """Return the names of the fused kernels of each graph that inductor compiled, by the graph's key."""
    kind = getattr(sys.modules.get("torch._inductor.output_code"), "CompiledFxGraph", None)
    found: dict[str, tuple[str, ...]] = {}
    for each in gc.get_objects() if kind is not None else ():
        if type(each) is kind:
            key, source = getattr(each, "_fx_graph_cache_key", None), getattr(each, "source_code", None)
            if isinstance(key, str) and isinstance(source, str):
                found[key] = tuple(_KERNEL.findall(source))
    return found


def _name_layers(operators: Sequence[Region], weights: Mapping[int, Weight]) -> None:
    read_by: _Readers = defaultdict(set)  # in the forward pass
    calls: defaultdict[Region, list[Region]] = defaultdict(list)
    for region in operators:
        around = [each for each in surroundings(region) if each.is_compiled or each.is_engine_node]
        calls[around[-1]].append(region)
    went_back = False
    for outermost, inside in calls.items():
        for region in inside:
            layers = {weights[each].layer for each in _read(region) if each in weights}
            region.layer = layers.pop() if len(layers) == 1 else None
        if outermost.is_engine_node:
            _name_gradients(inside, weights, read_by)
        else:
            if went_back:  # another step: addresses are used again
                read_by.clear()
            _note_reads(inside, weights, read_by)
        went_back = outermost.is_engine_node


def _name_gradients(inside: Sequence[Region], weights: Mapping[int, Weight], read_by: _Readers) -> None:
    """Name the layers of the products that read no weight, in one call of a backward graph."""
    beside: _Readers = defaultdict(set)
    _note_reads(inside, weights, beside)
    for region in inside:
        if region.name != _PRODUCT or any(each in weights for each in _read(region)):
            continue
        of_size = {each.layer for each in weights.values() if each.elements == _elements(region)}
        evidence = [set[str]().union(*(readers[each] for each in _read(region))) for readers in (beside, read_by)]
        layers = of_size.intersection(*(each for each in evidence if each)) if any(evidence) else set()
        region.layer = layers.pop() if len(layers) == 1 else None


def _note_reads(inside: Iterable[Region], weights: Mapping[int, Weight], into: _Readers) -> None:
    for region in inside:
        if region.layer is not None:
            for each in _read(region):
                if each not in weights:
                    into[each].add(region.layer)


def _read(region: Region) -> Sequence[int]:
    return region.addresses[: _READS.get(region.name)]


def _elements(region: Region) -> int:
    """Return how many elements a product of two matrices has."""
    shapes: Any = region.shapes
    return int(shapes[0][0] * shapes[1][1])
