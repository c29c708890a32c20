"""Several threads that train at once: where the turns of each end."""

import numpy as np
from plain_rows import table

from tbdprof.analysis.memory.turns import turns
from tbdprof.analysis.spans import SpanTree
from tbdprof.facts.records import Operation, Phase, SpanKind
from tbdprof.facts.rows import Table

MARKS = np.array([12, 22, 32, 42])


def updates(*spans: tuple[int, int, int]) -> SpanTree:
    """Return the tree of updates, each given as its thread and where it begins and ends."""
    rows: Table = table(
        "span",
        [
            (i, -1, SpanKind.PHASE, Phase.UPDATE, Operation.OTHER, 0, thread, first, last, first, last, -1, -1, 0)
            for i, (thread, first, last) in enumerate(spans)
        ],
    )
    return SpanTree(rows)


def test_where_one_thread_updates_there_are_no_turns():
    assert not turns(updates((1, 10, 11), (1, 20, 21), (1, 30, 31), (1, 40, 41)), MARKS).ends


def test_a_thread_s_turns_end_with_its_updates():
    found = turns(updates((1, 10, 11), (2, 20, 21), (1, 30, 31), (2, 40, 41)), MARKS)
    assert {thread: ends.tolist() for thread, ends in found.ends.items()} == {1: [11, 31], 2: [21, 41]}
    thread, start, end = np.array([1, 1, 2, 3]), np.array([5, 12, 5, 5]), np.array([35, 35, 35, 35])
    assert found.crossed(thread, start, end).tolist() == [2, 1, 1, 0]


def test_with_two_updates_a_step_every_second_ends_a_turn():
    spans = [
        (thread, at, at + 1) for thread, at in ((1, 5), (1, 10), (2, 15), (2, 20), (1, 25), (1, 30), (2, 35), (2, 40))
    ]
    found = turns(updates(*spans), MARKS)
    assert {thread: ends.tolist() for thread, ends in found.ends.items()} == {1: [11, 31], 2: [21, 41]}


def test_the_steps_count_from_where_each_thread_has_ended_a_turn():
    found = turns(updates((1, 10, 11), (2, 20, 21), (1, 30, 31), (2, 40, 41)), MARKS)
    assert found.settled(MARKS).tolist() == [22, 32, 42]
    late = turns(updates((1, 10, 11), (1, 20, 21), (2, 35, 36), (2, 40, 41)), MARKS)
    assert late.settled(MARKS).tolist() == [32, 42]


def test_an_update_put_together_from_many_threads_operators_is_no_threads_turn():
    assert not turns(updates((-1, 10, 11), (-2, 20, 21), (-3, 30, 31), (-4, 40, 41)), MARKS).ends
