"""Walking a window's spans upwards."""

import numpy as np
from make import KernelStory

from tbdprof.analysis.spans import SpanTree
from tbdprof.facts.records import Phase, SpanKind


def nested() -> KernelStory:
    """operator 0 > phase 1 > operator 2 > operator 3, and operator 4 alone."""
    story = KernelStory()
    outer = story.operator("outer", Phase.BACKWARD, 0, 100)
    phase = story.span(SpanKind.PHASE, "recompute", Phase.RECOMPUTE, 10, 90, parent=outer)
    middle = story.operator("middle", Phase.RECOMPUTE, 20, 80, parent=phase)
    story.operator("inner", Phase.RECOMPUTE, 30, 70, parent=middle)
    story.operator("alone", Phase.UPDATE, 100, 110)
    return story


ROWS = np.array([0, 1, 2, 3, 4, -1])


def test_the_nearest_the_outermost_of_a_kind_and_the_topmost_differ():
    tree = SpanTree(nested().window().table("span"))
    operators = tree.rows["kind"] == SpanKind.OPERATOR

    assert tree.nearest(ROWS, operators).tolist() == [0, 0, 2, 3, 4, -1]
    assert tree.outermost(ROWS, SpanKind.OPERATOR).tolist() == [0, 0, 2, 2, 4, -1]
    assert tree.topmost(ROWS, operators).tolist() == [0, 0, 0, 0, 4, -1]


def test_spans_may_come_in_any_order_and_with_any_ids():
    spans = nested().window().table("span").copy()
    spans["id"] = 10 * spans["id"] + 5
    spans["parent"] = np.where(spans["parent"] >= 0, 10 * spans["parent"] + 5, -1)

    tree = SpanTree(spans[::-1])

    assert tree.rows["id"].tolist() == [5, 15, 25, 35, 45]
    assert tree.above(ROWS).tolist() == [-1, 0, 1, 2, -1, -1]
    assert tree.index(np.array([25, 26, -1])).tolist() == [2, -1, -1]


def test_a_window_without_spans_encloses_nothing():
    tree = SpanTree(KernelStory().window().table("span"))

    assert tree.index(np.array([0, -1])).tolist() == [-1, -1]
    assert tree.layer(np.array([-1])).tolist() == [-1]
    assert tree.phase(np.array([-1])).tolist() == [Phase.OUTSIDE]
