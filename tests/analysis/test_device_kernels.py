"""Kernels of a GPU: the span of each where only its launch's thread and time are reported, and the host's waiting."""

import numpy as np
import pytest
from make import KernelStory
from plain_rows import table

from tbdprof.analysis.kernels.executions import gather
from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.spans import SpanTree
from tbdprof.analysis.summary import summarize
from tbdprof.analysis.time.step_time import step_time
from tbdprof.analysis.time.timeline import timeline
from tbdprof.facts.records import Phase, SpanKind
from tbdprof.facts.rows import KINDS
from tbdprof.results.time import Idle

MAIN, AUTOGRAD = 1, 2


def a_story() -> KernelStory:
    story = KernelStory(device="cuda:0")
    story.settle()
    story.step(0, 1000)
    return story


def kernels_of(story: KernelStory) -> Kernels:
    found = gather(story.recording())
    assert found is not None
    return found


def placed(story: KernelStory) -> dict[str, tuple[Phase, str, str]]:
    """Each kernel's phase, layer and operator."""
    found = kernels_of(story)
    rows = zip(found.name, found.phase, found.layer, found.operator, strict=True)
    texts = found.strings
    return {texts[name]: (Phase(phase), texts[layer], texts[operator]) for name, phase, layer, operator in rows}


def test_a_kernel_lies_in_the_innermost_operator_open_on_its_thread_at_its_launch():
    story = a_story()
    forward = story.span(SpanKind.PHASE, "forward", Phase.FORWARD, 0, 400)
    fc = story.layer("fc", 10, 300, parent=forward)
    linear = story.operator("linear", Phase.FORWARD, 20, 200, parent=fc)
    story.operator("addmm", Phase.FORWARD, 30, 100, parent=linear)
    story.kernel("in addmm", 500, 510, launch=30, thread=MAIN)
    story.kernel("after addmm", 520, 530, launch=100, thread=MAIN)
    story.kernel("in the layer", 540, 550, launch=250, thread=MAIN)
    story.kernel("in forward", 560, 570, launch=399, thread=MAIN)
    story.kernel("in nothing", 580, 590, launch=400, thread=MAIN)

    assert placed(story) == {
        "in addmm": (Phase.FORWARD, "fc", "linear"),
        "after addmm": (Phase.FORWARD, "fc", "linear"),
        "in the layer": (Phase.FORWARD, "fc", ""),
        "in forward": (Phase.FORWARD, "", ""),
        "in nothing": (Phase.OUTSIDE, "", ""),
    }


def test_backward_on_a_thread_of_its_own_finds_phase_and_the_layer_of_its_forward_operator():
    story = a_story()
    fc = story.layer("fc", 0, 100)
    story.operator("addmm", Phase.FORWARD, 10, 50, parent=fc, forward=5)
    story.operator("after", Phase.UPDATE, 200, 400)
    story.operator("mm", Phase.BACKWARD, 200, 400, forward=5, thread=AUTOGRAD)
    story.kernel("of backward", 500, 600, launch=300, thread=AUTOGRAD)
    story.kernel("of the update", 600, 700, launch=300, thread=MAIN)
    story.kernel("of nobody's thread", 700, 800, launch=300, thread=7)

    assert placed(story) == {
        "of backward": (Phase.BACKWARD, "fc", "mm"),
        "of the update": (Phase.UPDATE, "", "after"),
        "of nobody's thread": (Phase.OUTSIDE, "", ""),
    }


def test_a_reported_span_goes_before_the_time_of_the_launch():
    story = a_story()
    reported = story.operator("reported", Phase.FORWARD, 0, 10)
    story.operator("open", Phase.BACKWARD, 20, 100)
    story.kernel("it", 200, 300, span=reported, launch=50, thread=MAIN)

    assert placed(story)["it"] == (Phase.FORWARD, "", "reported")


@pytest.mark.parametrize("missing", [{"launch": -1, "thread": MAIN}, {"launch": 50, "thread": -1}])
def test_without_thread_or_time_a_kernel_lies_nowhere(missing):
    story = a_story()
    story.operator("open", Phase.BACKWARD, 0, 100)
    story.kernel("it", 200, 300, **missing)

    assert placed(story)["it"] == (Phase.OUTSIDE, "", "")


def test_of_spans_begun_at_once_the_last_opened_is_the_innermost():
    story = a_story()
    outer = story.operator("outer", Phase.FORWARD, 0, 100)
    story.layer("inside", 0, 100, parent=outer)
    story.kernel("it", 200, 300, launch=0, thread=MAIN)

    assert placed(story)["it"] == (Phase.FORWARD, "inside", "outer")


def nested(generator: np.random.Generator) -> list[tuple[object, ...]]:
    """Return spans that nest at random, on two threads, in the order of their opening."""
    rows: list[tuple[object, ...]] = []

    def fill(begin: int, end: int, parent: int, thread: int) -> None:
        now = begin
        while now < end and len(rows) < 60:
            first = int(generator.integers(now, end + 1))
            last = int(generator.integers(first, end + 1))
            if generator.random() < 0.2 or last == first:
                return
            identity = len(rows)
            place = (identity, parent, SpanKind.OPERATOR, Phase.FORWARD, 0, -1, thread, first, last)
            rows.append((*place, 0, 0, -1, -1, 0, -1))
            fill(first, last, identity, thread)
            now = last

    for thread in (MAIN, AUTOGRAD):
        fill(0, 40, -1, thread)
    return rows


@pytest.mark.parametrize("seed", range(40))
def test_the_innermost_open_span_is_what_a_look_at_every_one_finds(seed):
    rows = nested(np.random.default_rng(seed))
    tree = SpanTree(table("span", rows) if rows else np.empty(0, KINDS["span"]))
    times, threads = np.tile(np.arange(-1, 42), 3), np.repeat([MAIN, AUTOGRAD, 3], 43)

    found = tree.open_at(times, threads)

    for row, time, thread in zip(found, times, threads, strict=True):
        begun = [each for each in rows if each[6] == thread and each[7] <= time < each[8]]
        assert (tree.rows["id"][row] if row >= 0 else -1) == max((each[0] for each in begun), default=-1)


def idle_of(story: KernelStory) -> Idle:
    kernels = kernels_of(story)
    return step_time(kernels, timeline(kernels)).value.idle


def a_busy_step() -> KernelStory:
    """A step of 1000 ns: forward from 100 to 300, backward from 600 to 800; no kernel in between and after."""
    story = a_story()
    forward = story.operator("f", Phase.FORWARD, 0, 50)
    backward = story.operator("b", Phase.BACKWARD, 400, 500)
    story.kernel("f", 100, 300, span=forward)
    story.kernel("b", 600, 800, span=backward)
    return story


def test_idle_time_in_which_the_host_waits_for_the_device_is_synchronization():
    story = a_busy_step()
    story.wait(200, 350)  # 50 of it idle
    story.wait(320, 360)  # 10 more
    story.wait(50, 90)  # before forward: data

    idle = idle_of(story)

    assert (idle.total, idle.data_wait) == pytest.approx((0.6, 0.1))
    assert (idle.synchronization, idle.launching) == pytest.approx((0.06, 0.44))


def test_reasons_to_idle_add_up_to_it_without_waiting_too():
    idle = idle_of(a_busy_step())

    assert idle.synchronization is None
    assert idle.data_wait + idle.launching == pytest.approx(idle.total)


def test_why_synchronization_is_null_depends_on_the_kind_of_device():
    on_gpu, on_cpu = a_busy_step(), KernelStory()
    on_cpu.settle()
    on_cpu.step(0, 100)
    on_cpu.operator("f", Phase.FORWARD, 0, 50)

    reasons = [summarize(story.recording()).missing["time.idle.synchronization"] for story in (on_gpu, on_cpu)]

    assert reasons == ["no call in which the host waits for the device was recorded", "reported on a GPU only"]
