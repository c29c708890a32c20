"""The names that Grappler, TensorFlow's optimizer of graphs, and the runtime give to operators.

A function's operators have the name of its call before theirs once it is written out in place
("StatefulPartitionedCall/…"), a loop's that of the loop and which copy it is ("lstm/while/body/_12/…"). What is
rewritten keeps its name, with a scope and a mark of the stage that wrote it
("ArithmeticOptimizer/AddOpsRewrite_Leaf_0_add_1", "truediv_recip").
"""

import re
from collections.abc import Iterator

_STAGES = frozenset({"ArithmeticOptimizer", "ConstantFolding", "ConstantFoldingCtrl", "LayoutOptimizer"})
_COPY = re.compile(r"^(body|cond|then|else)/_\d+/(.*)$")


def calls(name: str) -> Iterator[tuple[str, str, str]]:
    """Yield each way a name may be one within a call: the call's name, which of its functions, the name in that."""
    parts = name.split("/")
    for size in range(1, len(parts)):
        outer, inner = "/".join(parts[:size]), "/".join(parts[size:])
        copied = _COPY.match(inner)
        if copied:
            yield outer, copied[1], copied[2]
        yield outer, "", inner


def originals(name: str) -> Iterator[str]:
    """Yield the names an operator may have had before it was rewritten, the likeliest first."""
    yield name
    parts = [part for part in name.split("/") if part not in _STAGES]
    before, last = "/".join(parts[:-1]), parts[-1]
    scope = f"{before}/" if before else ""
    yield scope + last
    yield scope + last.partition("-")[0]
    words = last.split("_")
    for dropped in range(1, len(words)):
        yield scope + "_".join(words[dropped:])
    for kept in range(len(words) - 1, 0, -1):
        yield scope + "_".join(words[:kept])
    if before:
        yield before
