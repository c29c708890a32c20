"""A hybridized block's graph as a list of operators, with the shapes and types of their inputs and outputs."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import mxnet as mx
import numpy as np
from mxnet.executor import Executor

from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.on_mxnet.session.calls import NO_GRADIENT, Array, GraphCall, Stored

# Operators that may cost nothing, because they keep the same elements in place; MXNet skips them or they do nothing.
ELIDED = frozenset(
    {"Reshape", "Flatten", "expand_dims", "squeeze", "reshape_like", "_copy", "identity", "BlockGrad", "make_loss"}
    | {"_identity_with_attr_like_rhs", "_np_copy", "_np_reshape", "_npx_reshape", "_np_squeeze"}
)
# A node's inputs and the nodes that must run before it, as in "arg[0]=fc1(0)" and "cdep[0]=fc1".
_PLACE = re.compile(r"\t(arg|cdep)\[\d+\]=(\S+)")
# On a GPU, MXNet fuses several element-wise operators into one (MXNET_USE_FUSION).
FUSED = "_FusedOp"
_DENSE = frozenset({"FullyConnected", "Embedding", "_contrib_SparseEmbedding"})  # results, whatever the inputs are


@dataclass(frozen=True, slots=True)
class Node:
    """An operator of a graph; `parameters` names the graph's inputs that it takes."""

    operator: str
    name: str
    attributes: Mapping[str, str]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    parameters: tuple[str, ...]


class Graphs:
    """The nodes of graphs, computed once for each set of arguments."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[Array, ...]], list[Node]] = {}

    def nodes(self, call: GraphCall) -> list[Node]:
        """Return the operators of a graph in the order in which MXNet requests them."""
        key = id(call.symbol), call.inputs  # the call keeps the symbol alive
        if key not in self._known:
            self._known[key] = _nodes(call)
        return self._known[key]


def align(asked: Sequence[str], nodes: Sequence[Node]) -> list[Node] | None:
    """Match requested operators with a graph's nodes: return each one's node, or None if the graph is another one."""
    found, place = list[Node](), 0
    for name in asked:
        while place < len(nodes) and nodes[place].operator != name and nodes[place].operator in ELIDED:
            place += 1
        if place == len(nodes) or nodes[place].operator != name:
            return None
        found.append(nodes[place])
        place += 1
    return found if all(node.operator in ELIDED for node in nodes[place:]) else None


def place(asked: Sequence[str], nodes: Sequence[Node]) -> list[tuple[Node, ...]] | None:
    """Like `align`, with operators that MXNet fused: return each one's nodes, or None if the graph is another one.

    A fused operator has several nodes. An operator has no nodes if it is not known which are its own. A name that is
    requested as often as it occurs in the graph is not fused, and its operators divide the graph into parts. The same
    rule holds again within each part. The nodes left over in a part form its one fused operator.
    """
    if FUSED not in asked:
        exact = align(asked, nodes)
        return None if exact is None else [(node,) for node in exact]
    listed, written = Counter(asked), Counter(node.operator for node in nodes)
    whole = {name for name in listed if listed[name] == written[name]}
    between, between_nodes = list(_parts(asked, whole)), list(_parts([node.operator for node in nodes], whole))
    dividing = [node for node in nodes if node.operator in whole]
    if [name for name in asked if name in whole] != [node.operator for node in dividing]:
        return None
    found = list[tuple[Node, ...]]()
    for number, (part, of_nodes) in enumerate(zip(between, between_nodes, strict=True)):
        found += _within(asked[part], nodes[of_nodes])
        found += [(node,) for node in dividing[number : number + 1]]
    return found


def _parts(names: Sequence[str], dividing: Collection[str]) -> Iterator[slice]:
    begin = 0
    for number, name in enumerate(names):
        if name in dividing:
            yield slice(begin, number)
            begin = number + 1
    yield slice(begin, len(names))


def _within(asked: Sequence[str], nodes: Sequence[Node]) -> list[tuple[Node, ...]]:
    """Return the nodes of the operators in a part of a graph."""
    listed, written = Counter(asked), Counter(node.operator for node in nodes)
    ordinary = {name for name in listed if listed[name] == written[name]}
    in_turn = {name: (node for node in nodes if node.operator == name) for name in ordinary}
    left = tuple(node for node in nodes if node.operator not in ordinary | ELIDED)
    fused = left if listed[FUSED] == 1 and len(left) > 1 else ()
    return [(next(in_turn[name]),) if name in ordinary else fused if name == FUSED else () for name in asked]


def _nodes(call: GraphCall) -> list[Node]:
    graph = json.loads(call.symbol.tojson())
    listed, copied = graph["nodes"], _copied([(source, output) for source, output, *_ in graph["heads"]])
    used = {(source, output) for node in listed for source, output, *_ in node["inputs"]}
    entries = sorted(used | {(i, 0) for i in range(len(listed))})
    graph["heads"] = [[*entry, 0] for entry in entries]
    arrays = dict(zip(entries, _inferred(json.dumps(graph), call), strict=True))
    given = dict(zip(call.symbol.list_inputs(), call.inputs, strict=True))
    found, wanted, stored = list[Node](), dict[int, bool](), dict[int, Stored | None]()
    for number, node in enumerate(listed):
        if node["op"] == "null":
            wanted[number] = node["name"] in given and given[node["name"]].wanted
            stored[number] = given[node["name"]].stored if node["name"] in given else None
            continue
        sources = [(source, output) for source, output, *_ in node["inputs"]]
        wanted[number] = node["op"] not in NO_GRADIENT and any(wanted[source] for source, _ in sources)
        stored[number] = _stored(node["op"], node.get("attrs", {}), [stored[source] for source, _ in sources])
        for entry in {*sources, *(entry for entry in entries if entry[0] == number)}:
            arrays[entry] = arrays[entry]._replace(wanted=wanted[entry[0]], stored=stored[entry[0]])
        found.append(
            Node(
                node["op"],
                node["name"],
                node.get("attrs", {}),
                tuple(arrays[entry] for entry in sources),
                tuple(arrays[entry] for entry in entries if entry[0] == number),
                tuple(listed[source]["name"] for source, _ in sources if listed[source]["op"] == "null"),
            )
        )
        for entry in copied[number]:
            array = arrays[entry]._replace(wanted=wanted[entry[0]])
            found.append(Node("_copy", f"{listed[entry[0]]['name']}_copy", {}, (array,), (array,), ()))
    return found


def _stored(operator: str, attributes: Mapping[str, str], inputs: Sequence[Stored | None]) -> Stored | None:
    """Return what is known of a node's results, which may be sparse if an input is: a graph does not say."""
    if operator == "cast_storage":
        return None if attributes["stype"] == "default" else Stored()
    if not any(inputs) or operator in _DENSE or attributes.get("forward_stype") == "default":
        return None
    of_rows = operator == "dot" and inputs[0] is not None and attributes.get("transpose_a") not in ("True", "1")
    return None if of_rows else Stored()


def _copied(heads: Sequence[tuple[int, int]]) -> Mapping[int, list[tuple[int, int]]]:
    """Return the results that are copied, by the node after which that happens: a graph copies a repeated output.

    The nodes are in the order in which the heads need them.
    """
    found, reached = defaultdict[int, list[tuple[int, int]]](list), 0
    for place, head in enumerate(heads):
        reached = max(reached, head[0])
        if head in heads[:place]:
            found[reached].append(head)
    return found


def _inferred(graph: str, call: GraphCall) -> list[Array]:
    """Return the shapes and types of a graph's heads, given its arguments."""
    symbol = mx.sym.load_json(graph)
    arguments = set(symbol.list_arguments())
    given = {n: a for n, a in zip(call.symbol.list_inputs(), call.inputs, strict=True) if n in arguments}
    _, shapes, _ = symbol.infer_shape(**{name: array.shape for name, array in given.items()})
    _, types, _ = symbol.infer_type(**{name: array.dtype for name, array in given.items()})
    if shapes is None or types is None:
        raise mx.base.MXNetError("the shapes do not follow from the arguments'")
    return [Array(tuple(shape), np.dtype(kind).name) for shape, kind in zip(shapes, types, strict=True)]


@dataclass(frozen=True, slots=True)
class Printed:
    """A node of an executor's graph, gradients among them, as the executor prints it."""

    operator: str  # "" for a variable
    name: str
    inputs: tuple[str, ...] = ()  # the names of the nodes that it reads
    forward: str = ""  # the node whose gradient it computes, if MXNet says so


def printed(text: str) -> list[Printed]:
    """Return the nodes of an executor's graph, in the order in which it numbers them."""
    found = list[Printed]()
    for line in text.splitlines():
        kind, _, rest = line.partition(":")
        if kind == "Variable":
            found.append(Printed("", rest))
        elif kind == "Op":
            operator, _, name = rest.partition(", Name=")
            found.append(Printed(operator, name))
        elif found and (place := _PLACE.match(line)):
            last, other = found[-1], place[2]
            if place[1] == "arg":
                found[-1] = replace(last, inputs=(*last.inputs, other.rpartition("(")[0]))
            else:
                found[-1] = replace(last, forward=last.forward or other)
    return found


def of_executor(executor: Executor, stored: Mapping[str, Stored] | None = None) -> GraphCall:
    """Return a call of an executor's whole graph, with what it is bound to, and what its sparse arguments store."""
    symbol = executor._symbol  # noqa: SLF001
    arguments = zip(symbol.list_arguments(), executor.arg_arrays, executor.grad_arrays, strict=True)
    bound = {name: _bound(array, wanted=gradient is not None) for name, array, gradient in arguments}
    auxiliary = zip(symbol.list_auxiliary_states(), executor.aux_arrays, strict=True)
    bound |= {name: _bound(array, wanted=False) for name, array in auxiliary}
    bound |= {name: bound[name]._replace(stored=each) for name, each in (stored or {}).items()}
    return GraphCall(executor, symbol, tuple(bound[name] for name in symbol.list_inputs()))


def _bound(array: mx.nd.NDArray, *, wanted: bool) -> Array:
    stored = Stored() if layout.is_sparse(array) else None
    return Array(tuple(array.shape), np.dtype(array.dtype).name, wanted, stored)
