"""The verdict names what each planted loop is bound by, or has it first among what it cannot tell apart."""

import pytest
from judges.process import Run


@pytest.mark.parametrize(("loop", "bound_by"), [("starved", "data"), ("tiny", "launching"), ("products", "compute")])
def test_the_verdict_names_what_the_loop_is_bound_by(run: Run, loop: str, bound_by: str):
    verdict = run("torch_bounds", loop).report["verdict"]

    assert verdict["bound_by"] in (bound_by, None)  # None: the machine is too busy to tell
    assert verdict["candidates"][0] == bound_by
    assert verdict["share"] > 0.5
    assert verdict["advice"]
