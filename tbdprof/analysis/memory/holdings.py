"""The blocks live at the peak, each with its name, layer, operator and shape, and their sum by layer."""

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tbdprof.analysis.memory.account import Account
from tbdprof.facts.arrays import Ints
from tbdprof.facts.records import Role, SpanKind
from tbdprof.results.memory import Holding

TOP = 20
# The endings that MXNet's symbols give the names of their parameters: `conv1_weight` belongs to `conv1`.
_OF_SYMBOL = re.compile(r"_(weight|bias|gamma|beta|parameters|(moving|running)_(mean|var))$")


def holdings(worked: Account, row: int) -> list[Holding]:
    """Return the blocks that are live after an event, the largest first."""
    live = worked.live(row)
    return described(worked, live[np.argsort(-worked.blocks.size_bytes[live], kind="stable")])


def described(worked: Account, live: Ints) -> list[Holding]:
    """Return what is known of some blocks, in their order."""
    outer = worked.tree.outermost(worked.tree.index(worked.blocks.span[live]), SpanKind.OPERATOR)
    layers = worked.tree.name(worked.tree.layer(worked.tree.index(worked.blocks.span[live])))
    names = [worked.strings[name] if name >= 0 else None for name in layers.tolist()]
    places = zip(live.tolist(), names, worked.tree.name(outer).tolist(), strict=True)
    return [_holding(worked, block, layer, operator) for block, layer, operator in places]


def _holding(worked: Account, block: int, layer: str | None, operator: int) -> Holding:
    owners, strings = worked.window.table("owner"), worked.strings
    record = int(worked.owned.record[block]) if worked.owned.role[block] == worked.roles[block] else -1
    name = strings[int(owners["name"][record])] if record >= 0 else None
    shape = int(owners["shape"][record]) if record >= 0 else int(worked.blocks.shape[block])
    role = Role(int(worked.roles[block]))
    return Holding(
        name=name,
        role=role,
        layer=_owner_layer(name, role) if name is not None else layer,
        operator=strings[operator] or None,
        shape=strings[shape] or None,
        size_bytes=int(worked.blocks.size_bytes[block]),
    )


def by_layer(held: Sequence[Holding], unreported_bytes: int) -> tuple[tuple[str | None, int], ...]:
    """Return the bytes of each layer, the largest first; None stands for bytes in no layer or in no reported block."""
    sums: dict[str | None, int] = defaultdict(int)
    for holding in held:
        sums[holding.layer] += holding.size_bytes
    if unreported_bytes:
        sums[None] += unreported_bytes
    return tuple(sorted(sums.items(), key=lambda item: -item[1]))


def _owner_layer(name: str, role: Role) -> str | None:
    """Return the layer of a named block: `layer1.0.conv1.weight` belongs to `layer1.0.conv1`."""
    if role in (Role.INPUT, Role.WORKSPACE):
        return None
    parameter = (name.rpartition("/")[0] or name).partition(" [")[0]
    return parameter.rpartition(".")[0] or _OF_SYMBOL.sub("", parameter) * bool(_OF_SYMBOL.search(parameter))
