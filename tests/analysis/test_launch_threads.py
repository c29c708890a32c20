"""A kernel that CUPTI reports lies in the operator its launch was made in, also where threads are reported in part."""

import threading

from fake_cupti import FakeCupti, RuntimeApiTraceCbid, call, kernel
from fakes import FakeClock
from make import KernelStory

from tbdprof.analysis.kernels.executions import gather
from tbdprof.collect.activity.collector import ActivityCollector
from tbdprof.facts.records import Phase
from tbdprof.hooks.on_mxnet.thread_numbers import hashed

LAUNCH = RuntimeApiTraceCbid.cudaLaunchKernel_v7000


def a_story() -> KernelStory:
    story = KernelStory(device="cuda:0")
    story.settle()
    story.step(0, 1000)
    return story


def operators(story: KernelStory) -> list[str]:
    """Return the operator of each kernel, "" for none."""
    found = gather(story.recording())
    assert found is not None
    return [found.strings[int(name)] for name in found.operator]


def test_mxnets_operators_have_their_kernels_by_the_hash_of_the_thread():
    """Of two workers at once, each has its own; a hash may be negative."""
    worker, other = hashed(threading.get_ident()), -5
    story = a_story()
    story.operator("Convolution", Phase.FORWARD, 0, 500, thread=worker)
    story.operator("Copy", Phase.FORWARD, 0, 500, thread=other)
    cupti = FakeCupti(FakeClock())
    collector = ActivityCollector(cupti, clock=cupti.clock, number_of_thread=hashed)
    collector.start("kernels")
    cupti.records = [call(LAUNCH, 5, 100, thread=threading.get_ident()), kernel("k", 5, 300, 400)]
    collector.stop()
    story.kernels = [tuple(row) for row in collector.drain(story.strings).tables["kernel"].tolist()]

    assert operators(story) == ["Convolution"]


def test_a_negative_number_is_a_threads():
    story = a_story()
    story.operator("Convolution", Phase.FORWARD, 0, 500, thread=-7)
    story.operator("Copy", Phase.FORWARD, 0, 500, thread=8)
    story.kernel("k", 300, 400, launch=100, thread=-7)

    assert operators(story) == ["Convolution"]


def test_where_threads_are_numbered_otherwise_a_kernel_is_in_the_one_operator_that_was_open():
    story = a_story()
    outer = story.operator("Convolution", Phase.FORWARD, 0, 200, thread=7)
    story.operator("inner", Phase.FORWARD, 50, 150, parent=outer, thread=7)
    story.operator("Copy", Phase.FORWARD, 100, 300, thread=8)
    for start, launch in ((310, 60), (320, 120), (330, 250), (340, 305)):
        story.kernel("k", start, start + 5, launch=launch, thread=99)
    story.kernel("k", 350, 355, thread=99)  # when it was asked for is not reported

    # The outermost operator names it; two were open at 120, and none at 305.
    assert operators(story) == ["Convolution", "", "Copy", "", ""]


def test_a_kernel_is_not_given_to_another_threads_operator_where_numbers_agree():
    story = a_story()
    story.operator("Convolution", Phase.FORWARD, 0, 100, thread=7)
    story.operator("Copy", Phase.FORWARD, 150, 300, thread=8)
    story.kernel("k", 310, 320, launch=200, thread=7)
    story.kernel("k", 330, 340, launch=200, thread=99)  # a thread that runs no operators

    assert operators(story) == ["", ""]
