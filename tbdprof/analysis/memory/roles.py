"""The role of each block of memory: the one place that classifies memory, for every framework.

Every rule is positive: it names what it saw, and no rule is "everything else". A block that no rule claims is unknown.
The rules in order:

1.  An owner named the block while it lived: weight, gathered weight, buffer, gradient, optimizer state, library
    workspace, input, communication. (A block made inside the forward pass is no input: a tensor that one network passes
    to the next is a feature map. What the forward pass computed is a feature map even if it is sent.) A batch loaded
    before the window is input, too: a block that the framework alone holds, as large as a later batch.
2.  It was made by a memory planner: planned.
3.  It existed before the window, and is a tensor: dynamic, because it is kept from step to step.
4.  It lived through two ends of steps: dynamic if it was a tensor, workspace if it never was one (a library keeps it).
5.  It was made inside a collective operation: communication. It was made and freed within one other innermost operator:
    workspace (temporary if it was a tensor, compiled if a compiler made the operator).
6.  By the phase it was made in. Update: dynamic. Recomputation: recomputed. Backward: gradient if the accumulation
    into a gradient or its sending freed it, compiled if it was freed inside the compiled region that made it, otherwise
    gradient map. Forward: cast if it is a weight in another data type, otherwise feature map. Outside: input if it was
    live when the next forward pass began and was not made between an update and the end of its step, otherwise dynamic.
    If several threads train at once, rule 4 counts the ends of the turns of the thread that made the block (`turns`),
    and rule 6 uses that thread's forward pass. A block that the thread makes after its update is for its next turn.
7.  No block was reported, but the framework's own total rose within one outermost operator and fell back after it:
    workspace, of the operator's worker threads, if the run has several. (Bytes that stay are unknown.)

The categories are those of the TBD paper (Zhu et al., IISWC 2018, arXiv:1803.06905), section III-D-3.
`docs/memory.md` says what each role is, and decides the cases that the paper leaves open.
"""

import numpy as np
from numpy.typing import NDArray

from tbdprof.analysis.memory.account import Owned, Roles
from tbdprof.analysis.memory.blocks import BEFORE, Blocks
from tbdprof.analysis.memory.turns import NO_TURNS, Turns
from tbdprof.analysis.spans import SpanTree
from tbdprof.facts.arrays import Bools, Ints, Rows
from tbdprof.facts.records import Operation, Phase, Role, SpanKind
from tbdprof.facts.rows import Table

# If several owners name one block, the later one in this order wins: a tied or aliased storage counts once.
PRECEDENCE = (
    Role.COMMUNICATION,
    Role.INPUT,
    Role.WORKSPACE,
    Role.OPTIMIZER_STATE,
    Role.GRADIENT,
    Role.BUFFER,
    Role.GATHERED,
    Role.WEIGHT,
)
KEPT_MARKS = 2  # ends of steps a block must live through to count as kept; a loop variable lives through one


def owned(blocks: Blocks, owners: Table) -> Owned:
    """Join owners with the blocks that were live at their address when they were read."""
    role = np.full(len(blocks), Role.UNKNOWN, np.uint8)
    record = np.full(len(blocks), -1, np.int64)
    place = blocks.find(owners["address"], owners["sequence"])
    for claim in PRECEDENCE:
        chosen = np.flatnonzero((owners["role"] == claim) & (place >= 0))
        role[place[chosen]] = claim
        record[place[chosen]] = chosen
    return Owned(role, record)


def with_earlier_batches(named: Owned, blocks: Blocks, owners: Table, tree: SpanTree) -> Owned:
    """Return the owners with those of the batches that were loaded before the window, of which no event is reported.

    Such a block existed before the window, the framework alone holds it, and it is as large as a batch loaded later.
    """
    loaded = np.flatnonzero((named.role == Role.INPUT) & (tree.phase(tree.index(blocks.span)) == Phase.DATA))
    held = blocks.find(owners["address"], owners["sequence"])[owners["role"] == Role.UNKNOWN]
    held = held[(held >= 0) & np.isin(blocks.size_bytes[held], blocks.size_bytes[loaded])]
    earlier = held[(named.role[held] == Role.UNKNOWN) & (blocks.start[held] == BEFORE)]
    batch_of = dict(zip(blocks.size_bytes[loaded].tolist(), named.record[loaded].tolist(), strict=True))
    role, record = named.role.copy(), named.record.copy()
    role[earlier] = Role.INPUT
    record[earlier] = [batch_of[size] for size in blocks.size_bytes[earlier].tolist()]
    return Owned(role, record)


def classify(blocks: Blocks, named: Owned, tree: SpanTree, marks: Ints, own: Turns = NO_TURNS) -> Roles:
    """Return the role of every block; `marks` are the sequence numbers at which steps end, `own` the threads' turns."""
    made = tree.index(blocks.span)
    phase = tree.phase(made)
    # A framework may allocate in its own worker threads; the thread of the span is the one that trains.
    maker = np.where(made >= 0, tree.rows["thread"][made], blocks.thread)
    role = _by_phase(blocks, named, tree, made, phase, _outside(blocks, maker, tree, marks, own))
    common = _common_operator(blocks, tree, made, phase)
    role = np.where(common >= 0, _workspace(blocks, tree, common), role)
    sending = tree.any_above(made, tree.rows["operation"] == Operation.COMMUNICATION)
    role = np.where(sending, Role.COMMUNICATION, role)
    kept = _crossings(blocks, maker, marks, own) >= KEPT_MARKS
    role = np.where(kept, np.where(blocks.was_tensor == 0, Role.WORKSPACE, Role.DYNAMIC), role)
    existing = blocks.start == BEFORE
    role = np.where(existing, np.where(blocks.was_tensor == 1, Role.DYNAMIC, Role.UNKNOWN), role)
    role = np.where(_is(tree, made, "operation", Operation.PLANNED), Role.PLANNED, role)
    believed = (named.role != Role.UNKNOWN) & ~((named.role == Role.INPUT) & _made_inside(tree, made, phase))
    believed &= ~((named.role == Role.COMMUNICATION) & _computed_in_forward(tree, made, phase))
    return np.where(believed, named.role, role).astype(np.uint8)


def _is(tree: SpanTree, rows: Rows, column: str, value: int) -> Bools:
    matches: Bools = (rows >= 0) & (tree.rows[column][np.maximum(rows, 0)] == value)
    return matches


def _made_inside(tree: SpanTree, made: Rows, phase: NDArray[np.uint8]) -> Bools:
    """Return which blocks a network made itself; only recorded layers show which were made between networks."""
    layers = tree.rows["kind"] == SpanKind.LAYER
    inside: Bools = ~np.isin(phase, (Phase.OUTSIDE, Phase.DATA))
    if layers.any():
        inside &= ~((phase == Phase.FORWARD) & ~tree.any_above(made, layers))
    return inside


def _computed_in_forward(tree: SpanTree, made: Rows, phase: NDArray[np.uint8]) -> Bools:
    """Return which blocks hold what the forward pass computed; what is only sent was made empty."""
    empty = _is(tree, made, "operation", Operation.BOOKKEEPING)
    inside: Bools = (phase == Phase.FORWARD) & ~empty & _is(tree, made, "kind", SpanKind.OPERATOR)
    return inside


def _crossings(blocks: Blocks, maker: Ints, marks: Ints, own: Turns) -> Ints:
    steps = np.searchsorted(marks, blocks.end) - np.searchsorted(marks, blocks.start)
    return np.where(own.of(maker), own.crossed(maker, blocks.start, blocks.end), steps)


def _common_operator(blocks: Blocks, tree: SpanTree, made: Rows, phase: NDArray[np.uint8]) -> Rows:
    """Return the innermost operator of its phase that both made and freed a block; backward excludes recomputation."""
    operators = tree.rows["kind"] == SpanKind.OPERATOR
    found = tree.nearest(made, operators, inside=blocks.end, thread=blocks.free_thread)
    return np.where((found >= 0) & (tree.phase(found) == phase), found, np.int32(-1))


def _workspace(blocks: Blocks, tree: SpanTree, common: Rows) -> Roles:
    compiled = tree.any_above(common, tree.rows["operation"] == Operation.COMPILED)
    temporary = np.where(blocks.was_tensor == 1, Role.TEMPORARY, Role.WORKSPACE)
    return np.where(compiled, Role.COMPILED, temporary).astype(np.uint8)


def _by_phase(
    blocks: Blocks, named: Owned, tree: SpanTree, made: Rows, phase: NDArray[np.uint8], outside: Roles
) -> Roles:
    accumulated = tree.any_above(tree.index(blocks.free_span), tree.rows["operation"] == Operation.ACCUMULATE)
    region = tree.topmost(made, tree.rows["operation"] == Operation.COMPILED)
    compiled = (region >= 0) & (blocks.end < tree.rows["last_sequence"][region])
    backward = np.where(accumulated, Role.GRADIENT, np.where(compiled, Role.COMPILED, Role.GRADIENT_MAP))
    forward = np.where(_casts_weight(blocks, named, tree, made), Role.CAST, Role.FEATURE_MAP)
    return np.select(
        [
            phase == Phase.UPDATE,
            phase == Phase.RECOMPUTE,
            phase == Phase.BACKWARD,
            phase == Phase.FORWARD,
        ],
        [
            np.full(len(blocks), Role.DYNAMIC),
            np.full(len(blocks), Role.RECOMPUTED),
            backward,
            forward,
        ],
        outside,
    ).astype(np.uint8)


def _outside(blocks: Blocks, maker: Ints, tree: SpanTree, marks: Ints, own: Turns) -> Roles:
    """Return the role that each block has if it was made outside of all training phases."""
    apart = own.of(maker)
    given = _there_at_forward(blocks, tree)
    for thread in own.ends:
        given = np.where(maker == thread, _there_at_forward(blocks, tree, thread), given)
    given &= apart | ~_made_after_update(blocks, tree, marks)
    return np.where(given, Role.INPUT, Role.DYNAMIC).astype(np.uint8)


def _casts_weight(blocks: Blocks, named: Owned, tree: SpanTree, made: Rows) -> Bools:
    cast = tree.nearest(made, (tree.rows["operation"] == Operation.CAST) & (tree.rows["operand"] > 0))
    if not (cast >= 0).any():
        return np.zeros(len(blocks), bool)
    source = blocks.find(tree.rows["operand"][np.maximum(cast, 0)], np.maximum(blocks.start, 0))
    weight = named.role[np.maximum(source, 0)] == Role.WEIGHT
    of_weight: Bools = (cast >= 0) & (source >= 0) & weight
    return of_weight


def _made_after_update(blocks: Blocks, tree: SpanTree, marks: Ints) -> Bools:
    """Return which blocks were made between a step's update and its end, such as an averaged copy of the weights."""
    updates = (tree.rows["kind"] == SpanKind.PHASE) & (tree.rows["phase"] == Phase.UPDATE)
    begins = np.append(BEFORE, np.sort(tree.rows["first_sequence"][updates]))
    ends = np.append(BEFORE, marks)
    latest_update = begins[np.searchsorted(begins, blocks.start, side="right") - 1]
    after: Bools = latest_update > ends[np.searchsorted(ends, blocks.start, side="right") - 1]
    return after


def _there_at_forward(blocks: Blocks, tree: SpanTree, thread: int | None = None) -> Bools:
    """Return which blocks were live when the next forward pass began, on one thread or on any."""
    begins = (tree.rows["kind"] == SpanKind.PHASE) & (tree.rows["phase"] == Phase.FORWARD)
    if thread is not None:
        begins &= tree.rows["thread"] == thread
    forwards = np.append(np.sort(tree.rows["first_sequence"][begins]), np.iinfo(np.int64).max)
    there: Bools = forwards[np.searchsorted(forwards, blocks.start)] < blocks.end
    return there
