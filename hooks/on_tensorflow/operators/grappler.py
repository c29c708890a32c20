"""The names that operators get from Grappler, TensorFlow's graph optimizer, and from the runtime.

When a function is inlined, its operators' names begin with the name of the call ("StatefulPartitionedCall/…"). A loop's
begin with the name of the loop and the number of the copy ("lstm/while/body/_12/…"). A rewritten operator keeps its
name, with a scope and a mark of the stage that rewrote it ("ArithmeticOptimizer/AddOpsRewrite_Leaf_0_add_1",
"truediv_recip").
"""

import re
from collections.abc import Iterator

_STAGES = frozenset({"ArithmeticOptimizer", "ConstantFolding", "ConstantFoldingCtrl", "LayoutOptimizer"})
_COPY = re.compile(r"^(body|cond|then|else)/_\d+/(.*)$")


def calls(name: str) -> Iterator[tuple[str, str, str]]:
    """Yield each way to read a name as one inside a call: the call's name, which of its functions, the name in it."""
    parts = name.split("/")
    for size in range(1, len(parts)):
        outer, inner = "/".join(parts[:size]), "/".join(parts[size:])
        copied = _COPY.match(inner)
        if copied:
            yield outer, copied[1], copied[2]
        yield outer, "", inner


def originals(name: str) -> Iterator[str]:
    """Yield the names that an operator may have had before it was rewritten, the likeliest first."""
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
