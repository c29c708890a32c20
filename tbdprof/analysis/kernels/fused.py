"""The kernels that a compiler made of several operators, by name.

Several graphs may have kernels of one name. Then their operators and nodes are listed together.
"""

import json
from collections import defaultdict
from collections.abc import Mapping

from tbdprof.facts.recording import Recording
from tbdprof.facts.windows import KERNELS
from tbdprof.results.kernels import FusedKernel

_BETWEEN = ", "  # the names of the kernels in one graph


def fused_kernels(recording: Recording) -> dict[str, FusedKernel]:
    """Return the fused kernels of the kernels windows by their names."""
    operators, nodes = defaultdict[str, dict[str, None]](dict), defaultdict[str, dict[str, None]](dict)
    for window in recording.named(KERNELS):
        for row in window.table("fused"):
            name = recording.strings[row["kernel"]]
            for listed, column in ((operators, "operators"), (nodes, "nodes")):
                listed[name].update(dict.fromkeys(json.loads(recording.strings[row[column]] or "[]")))
    return {name: FusedKernel(name, tuple(operators[name]) or None, tuple(nodes[name]) or None) for name in operators}


def within(name: str, known: Mapping[str, FusedKernel]) -> tuple[FusedKernel, ...]:
    """Return the fused kernels that a name stands for, a kernel's or a graph's; none if it is of something else."""
    if name in known:
        return (known[name],)
    parts = name.split(_BETWEEN)
    return tuple(known[part] for part in parts) if all(part in known for part in parts) else ()
