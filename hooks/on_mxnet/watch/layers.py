"""Names of layers: a block's path in its model, with which its parameters' names begin ("layer1.0.conv1")."""

from collections.abc import Iterator, Sequence

from mxnet.gluon import Block

from tbdprof.hooks.naming import around
from tbdprof.hooks.on_mxnet.session.graphs import Node
from tbdprof.hooks.on_mxnet.watch.owners import Watched


class Layers:
    """The layers of the watched models."""

    def __init__(self, watched: Watched) -> None:
        self._paths: dict[int, str] = {}
        self._blocks: list[Block] = []
        for prefix, model in watched.prefixes():
            for path, block in _walk(prefix.removesuffix("."), model):
                if self._paths.setdefault(id(block), path) == path:
                    self._blocks.append(block)
        self._parameters = {p.name: name.rpartition(".")[0] for name, p in watched.parameters()}
        self._inside: dict[int, list[tuple[str, str]]] = {}

    def of_block(self, block: Block | None) -> str | None:
        """Return a block's layer, or None if the block is outside the watched models."""
        return self._paths.get(id(block))

    def of_nodes(self, block: Block, nodes: Sequence[Node]) -> str | None:
        """Return the layer around some operators in a block's graph, or None if one of them is in no layer."""
        paths = [self.of_node(block, node) for node in nodes]
        known = [path for path in paths if path is not None]
        return around(known) if len(known) == len(paths) else None

    def of_node(self, block: Block, node: Node) -> str | None:
        """Return the layer of an operator in a block's graph: the block whose name scope holds the operator's name.

        If blocks share a scope, the operator's parameters decide. Without parameters, it is the block around all of
        them.
        """
        if id(block) not in self._paths:
            return None
        scopes = self._scopes(block)
        longest = max((len(scope) for scope, _ in scopes if node.name.startswith(scope)), default=-1)
        paths = [path for scope, path in scopes if len(scope) == longest and node.name.startswith(scope)]
        if len(paths) == 1:
            return paths[0]
        owners = [self._parameters[name] for name in node.parameters if name in self._parameters]
        return around(owners or paths)

    def _scopes(self, block: Block) -> list[tuple[str, str]]:
        if id(block) not in self._inside:
            within = {id(each) for _, each in _walk("", block)}
            self._inside[id(block)] = [
                (each.prefix, self._paths[id(each)]) for each in self._blocks if id(each) in within
            ]
        return self._inside[id(block)]


def _walk(path: str, block: Block) -> Iterator[tuple[str, Block]]:
    yield path, block
    for name, child in block._children.items():  # noqa: SLF001 - there is no public walk
        yield from _walk(f"{path}.{name}" if path else name, child)
