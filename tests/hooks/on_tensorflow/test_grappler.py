"""Names of rewritten operators lead back to those they had."""

import pytest

from tbdprof.hooks.on_tensorflow.operators import grappler


@pytest.mark.parametrize(
    ("rewritten", "original"),
    [
        ("a/ArithmeticOptimizer/AddOpsRewrite_add_2", "a/add_2"),
        ("a/ArithmeticOptimizer/AddOpsRewrite_Leaf_1_add_2", "a/add_2"),
        ("ArithmeticOptimizer/AddOpsRewrite_AddN_11", "AddN_11"),
        ("a/b/ConstantFolding/truediv_recip", "a/b/truediv"),
        ("a/conv-0-TransposeNHWCToNCHW-LayoutOptimizer", "a/conv"),
    ],
)
def test_the_original_is_among_the_candidates(rewritten: str, original: str) -> None:
    assert original in list(grappler.originals(rewritten))


def test_a_name_is_first_taken_as_it_is() -> None:
    assert next(grappler.originals("a/AddOpsRewrite_add_2")) == "a/AddOpsRewrite_add_2"


def test_an_operator_of_a_loop_is_looked_for_in_the_loop_and_its_body() -> None:
    assert ("lstm/while", "body", "lstm/while/MatMul") in list(grappler.calls("lstm/while/body/_12/lstm/while/MatMul"))


def test_an_operator_of_a_function_written_out_in_place_is_looked_for_in_it() -> None:
    assert list(grappler.calls("StatefulPartitionedCall/add")) == [("StatefulPartitionedCall", "", "add")]
