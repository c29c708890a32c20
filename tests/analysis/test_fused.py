"""Kernels that a compiler made of several operators: by name, with the operators of all graphs."""

import json

from kernel_stories import US, summary_of
from make import KernelStory

from tbdprof.analysis.summary import summarize
from tbdprof.facts.records import Phase
from tbdprof.facts.rows import FusedRow, table
from tbdprof.results.kernels import FusedKernel

ROWS = (("add_relu_0", ["add", "relu"], ["add_1"]), ("add_relu_0", ["add", "relu"], ["add_2"]), ("mul_1", None, None))


def story() -> KernelStory:
    made = KernelStory()
    made.settle()
    made.step(0, 400 * US)
    for place, name in enumerate(("add_relu_0", "mul_1", "add_relu_0, mul_1", "add_relu_0, other")):
        made.operator(name, Phase.FORWARD, 100 * US * place, 100 * US * (place + 1))
    return made


def test_a_kernel_and_a_graph_have_the_operators_that_their_fused_kernels_were_made_of():
    recording = summary_of(story()).recording
    add = recording.strings.add
    rows = [FusedRow(add(name), *(-1 if each is None else add(json.dumps(each)) for each in of)) for name, *of in ROWS]
    (window,) = recording.named("kernels")
    window.tables = {**window.tables, "fused": table("fused", rows)}

    added, multiplied = FusedKernel("add_relu_0", ("add", "relu"), ("add_1", "add_2")), FusedKernel("mul_1", None, None)
    groups = summarize(recording).groups
    assert {group.name: group.fused for group in groups or ()} == {
        "add_relu_0": (added,),
        "mul_1": (multiplied,),
        "add_relu_0, mul_1": (added, multiplied),
        "add_relu_0, other": (),
    }
