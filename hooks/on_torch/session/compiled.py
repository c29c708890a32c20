"""What a compiler merged: the layers of operators in compiled regions, and the kernels it fused.

No module is called inside a compiled region, and the compiler keeps no names of layers. So an operator belongs to the
layer whose weight it reads. In the backward pass, the product that makes a weight's gradient reads no weight. It reads
the gradient that the layer's other product reads, and the activation that the layer read in the forward pass. What it
makes is as large as the weight. Where these leave more than one layer, or none, nothing is said.

The code that inductor generated says what a kernel was made of. Above a Triton kernel, a comment names its operators
and the nodes of the graph. A kernel in C++ has no comment, but its name is made of the names of its operators, in
alphabetical order. No setting of the compiler is changed: to track more (`INDUCTOR_PROVENANCE`) it takes longer.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from tbdprof.hooks.instances import instances_of
from tbdprof.hooks.on_torch.session.events import Fused, Region, Scope, Weight, surroundings

_GRAPH = re.compile(r"## Call CompiledFxGraph (\w+) ##")
_DEFINED = re.compile(r"(\w*fused_\w+) = async_compile")
_SOURCES = re.compile(r"# .*Source Nodes: \[(.*)\], Original ATen: \[(.*)\]")
_NAME = re.compile(r"\w*?fused_(\w+)_\d+")
_MOST = 50  # readings of a part of a name: more than one of the whole are as good as none
_Names = tuple[str, ...]
_PRODUCT = "aten::mm"
_READS = {_PRODUCT: 2, "aten::bmm": 2, "aten::addmm": 3, "aten::baddbmm": 3}  # tensors; what follows is the output
_Readers = defaultdict[int, set[str]]  # address -> the layers that read it


def describe(regions: Sequence[Region], weights: Mapping[int, Weight]) -> None:
    """Fill in layers and fused kernels; `regions` are in order of their start, `weights` has layers by address."""
    if not any(region.is_translated for region in regions):
        return
    _name_graphs(regions)
    _name_layers([region for region in regions if _is_of_graph(region)], weights)


def _is_of_graph(region: Region) -> bool:
    inside = region.parent is not None and region.parent.is_translated
    return inside and region.scope is Scope.FUNCTION and not (region.is_engine_node or region.holds_engine)


def _name_graphs(regions: Iterable[Region]) -> None:
    """Name regions of inductor by the kernels that it fused: on a CPU, their time is that of the region itself."""
    graphs = [(region, found[1]) for region in regions if (found := _GRAPH.match(region.name))]
    fused = _of_graphs() if graphs else {}
    for region, key in graphs:
        region.fused = fused.get(key, ())


def _of_graphs() -> dict[str, tuple[Fused, ...]]:
    """Return the kernels of each graph that inductor compiled, by the graph's key."""
    kind = getattr(sys.modules.get("torch._inductor.output_code"), "CompiledFxGraph", None)
    found: dict[str, tuple[Fused, ...]] = {}
    for each in instances_of(kind) if kind is not None else ():
        key, source = getattr(each, "_fx_graph_cache_key", None), getattr(each, "source_code", None)
        if isinstance(key, str) and isinstance(source, str):
            found[key] = tuple(kernels(source))
    return found


def kernels(source: str) -> Iterator[Fused]:
    """Yield the kernels that a graph's code defines."""
    comment: re.Match[str] | None = None
    for line in source.splitlines():
        if defined := _DEFINED.match(line):
            name = defined[1]
            said = None if comment is None else Fused(name, _listed(comment[2]), _listed(comment[1]))
            yield said or Fused(name, operators_in(name), None)
        comment = _SOURCES.match(line) or (comment if line.startswith("#") else None)


def operators_in(name: str) -> _Names | None:
    """Return the operators of which a kernel's name is made; None if it can be read in no way, or in several."""
    named = _NAME.fullmatch(name)
    found = _readings(named[1]) if named is not None else []
    return found[0] if len(found) == 1 else None


def _listed(text: str) -> _Names | None:
    return tuple(each.strip().removeprefix("aten.") for each in text.split(",") if each.strip()) or None


@cache
def _readings(text: str) -> list[_Names]:
    """Return the lists of operators whose names, joined by "_", are this text: each once, in alphabetical order."""
    found: list[_Names] = [(text,)] if text in _known() else []
    for place, character in enumerate(text):
        if character == "_" and text[:place] in _known():
            found += [(text[:place], *rest) for rest in _readings(text[place + 1 :]) if text[:place] < rest[0]]
    return found[:_MOST]


@cache
def _known() -> frozenset[str]:
    """Return the names of torch's operators."""
    parts = (name.partition("::") for name in torch._C._dispatch_get_all_op_names())  # noqa: SLF001 - no public list
    return frozenset(name.partition(".")[0] for space, _, name in parts if space in ("aten", "prims"))


def _name_layers(operators: Sequence[Region], weights: Mapping[int, Weight]) -> None:
    read_by: _Readers = defaultdict(set)  # in the forward pass
    calls: defaultdict[Region, list[Region]] = defaultdict(list)
    for region in operators:
        calls[_call(region)].append(region)
    went_back = False
    for inside in calls.values():
        goes_back = any(each.is_engine_node for each in surroundings(inside[0]))
        for region in inside:
            layers = {weights[each].layer for each in _read(region) if each in weights}
            region.layer = layers.pop() if len(layers) == 1 else None
        if goes_back:
            _name_gradients(inside, weights, read_by)
        else:
            if went_back:  # another step: addresses are used again
                read_by.clear()
            _note_reads(inside, weights, read_by)
        went_back = goes_back


def _call(region: Region) -> Region:
    """Return the outermost region around an operator in which only the forward or only the backward pass runs."""
    return [each for each in (region, *surroundings(region)) if not each.holds_engine][-1]


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
        if region.layer is not None and region.name in _READS:
            for each in _read(region):
                if each not in weights:
                    into[each].add(region.layer)


def _read(region: Region) -> Sequence[int]:
    return region.addresses[: _READS.get(region.name)]


def _elements(region: Region) -> int:
    """Return how many elements a product of two matrices has."""
    shapes: Any = region.shapes
    return int(shapes[0][0] * shapes[1][1])
