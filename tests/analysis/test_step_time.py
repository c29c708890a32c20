"""The partition of a step by phase, and why the device idles: hand-worked numbers, and a property held at random."""

import numpy as np
import pytest
from make import KernelStory

from tbdprof.analysis.kernels.executions import gather
from tbdprof.analysis.summary import summarize
from tbdprof.analysis.time.step_time import step_time
from tbdprof.analysis.time.timeline import PHASES, timeline
from tbdprof.facts.records import KernelKind, Operation, Phase, SpanKind
from tbdprof.results.time import StepTime

LETTERS = {
    "F": Phase.FORWARD, "B": Phase.BACKWARD, "R": Phase.RECOMPUTE, "U": Phase.UPDATE, "O": Phase.OUTSIDE,
    "D": Phase.DATA,
}  # fmt: skip


def story_of(picture: str, device: str = "cpu") -> KernelStory:
    """Return steps drawn as text: a letter is 10 ns of one operator, a dot of nothing; a bar ends a step."""
    story = KernelStory(device=device)
    story.settle()
    start = 0
    for step in picture.split("|"):
        story.step(start, start + 10 * len(step))
        for place, letter in enumerate(step):
            if letter != ".":
                begun = start + 10 * place
                story.operator(letter, LETTERS[letter], begun, begun + 10)
        start += 10 * len(step)
    return story


def spent(story: KernelStory) -> StepTime:
    kernels = gather(story.recording())
    assert kernels is not None
    return step_time(kernels, timeline(kernels)).value


def drawn(picture: str) -> str:
    """Return the phases of the pieces of a drawn step, a letter each 10 ns: data is d, other o."""
    kernels = gather(story_of(picture).recording())
    assert kernels is not None
    course = timeline(kernels)
    pieces = zip(course.phase.tolist(), course.length_ns.tolist(), strict=True)
    return "".join("dFBRUo"[phase] * (length // 10) for phase, length in pieces)


PICTURES = {
    # a gap belongs to what ran last; before forward it is data, at the step's end other
    "..FF.BB.U..": "ddFFFBBBUoo",
    # what runs outside before forward is data, and so is the framework's loader
    "O.F.B.U": "ddFFBBU",
    ".D.FFBU": "dddFFBU",
    "F.F": "FFF",
    # something outside, then forward: data again
    "F.O.F": "FFddF",
    # outside without a forward pass after it: clipping gradients, logging
    "FB.O.U": "FBBooU",
    "FBU.O.": "FBUUoo",
    "FBU.U.": "FBUUUo",
    # accumulation loads the next batch after backward; a GAN has two of everything
    "F.B.F.B.U": "FFBdFFBBU",
    "FBU.FBU": "FBUdFBU",
    "FB.R.B.U": "FBBRRBBU",
    # no forward pass at all
    ".U.": "oUo",
    # every step begins anew
    "..FBU|.FBU.": "ddFBUdFBUo",
    "FBU.|.FBU": "FBUodFBU",
}


@pytest.mark.parametrize(("picture", "phases"), PICTURES.items())
def test_every_instant_of_a_step_has_one_phase(picture, phases):
    assert drawn(picture) == phases


def test_phases_are_seconds_a_step_and_add_up_to_it():
    found = spent(story_of("..FF.BB.U..|.FFF.BBBUUU"))

    seconds = {phase.name: round(phase.seconds * 1e9) for phase in found.phases}
    assert tuple(seconds) == PHASES
    assert seconds == {"data": 15, "forward": 35, "backward": 30, "recompute": 0, "update": 20, "other": 10}
    assert found.step_seconds == pytest.approx(110e-9)
    assert {phase.name: round(phase.busy_seconds * 1e9) for phase in found.phases}["forward"] == 25
    assert sum(phase.share for phase in found.phases) == pytest.approx(1)


def test_the_device_idles_for_data_before_forward_and_for_launching_after():
    idle = spent(story_of("..FF.BB.U.")).idle

    assert (idle.total, idle.data_wait, idle.launching) == pytest.approx((0.5, 0.2, 0.3))
    assert (idle.synchronization, idle.copies, idle.communication) == (None, None, None)


def test_time_in_the_frameworks_loader_is_data_wait_even_if_operators_run_in_it():
    idle = spent(story_of(".DD.FFFFBU")).idle

    assert (idle.total, idle.data_wait, idle.launching) == pytest.approx((0.2, 0.4, 0))


def test_waiting_in_the_loader_is_data_wherever_it_is_unless_training_runs_meanwhile():
    story = story_of("FF...BB..U")
    story.span(SpanKind.PHASE, "enumerate(DataLoader)", Phase.DATA, 20, 60)

    found = spent(story)

    seconds = {phase.name: round(phase.seconds * 1e9) for phase in found.phases}
    assert seconds == {"data": 30, "forward": 20, "backward": 40, "recompute": 0, "update": 10, "other": 0}
    assert (found.idle.data_wait, found.idle.launching) == pytest.approx((0.3, 0.2))


def test_a_nested_operator_has_its_phase_while_it_runs_and_the_one_around_it_after():
    story = KernelStory()
    story.settle()
    story.step(0, 100)
    outer = story.operator("backward", Phase.BACKWARD, 0, 100)
    story.operator("relu", Phase.RECOMPUTE, 20, 50, parent=outer)

    seconds = {phase.name: round(phase.seconds * 1e9) for phase in spent(story).phases}

    assert (seconds["backward"], seconds["recompute"]) == (70, 30)


def test_training_goes_before_a_copy_of_the_next_batch_beside_it():
    story = story_of("FFFFBBBBUU", "cuda:0")
    for row in story.spans:
        story.kernel(f"of {row[0]}", row[7], row[8], span=row[0])
    story.kernel("copy", 15, 55, kind=KernelKind.COPY, stream=9)

    found = spent(story)

    seconds = {phase.name: round(phase.seconds * 1e9) for phase in found.phases}
    assert seconds == {"data": 0, "forward": 40, "backward": 40, "recompute": 0, "update": 20, "other": 0}
    assert (found.busy, found.covered) == pytest.approx((1, 1.4))
    assert found.idle.copies == 0


def test_copies_and_communication_count_where_nothing_else_runs():
    story = story_of("F.F.B...U.", "cuda:0")
    for row in story.spans:
        story.kernel(f"of {row[0]}", row[7], row[8], span=row[0])
    story.kernel("copy", 5, 25, kind=KernelKind.COPY, stream=9)
    reduce = story.operator("reduce", Phase.BACKWARD, 45, 50, operation=Operation.COMMUNICATION)
    story.kernel("nccl", 45, 75, span=reduce, stream=8)

    idle = spent(story).idle

    assert (idle.copies, idle.communication) == pytest.approx((0.1, 0.25))
    assert idle.total == pytest.approx(1 - 0.4 - 0.1 - 0.3 + 0.05)


@pytest.mark.parametrize("name", ["Memcpy DtoD (Device -> Device)", "MemcpyD2D", "Memset (Device)", "direct_copy"])
def test_what_a_gpu_copies_within_itself_is_no_copy_from_it_or_to_it(name: str):
    story = story_of("F.F.", "cuda:0")
    for row in story.spans:
        story.kernel(f"of {row[0]}", row[7], row[8], span=row[0])
    copied = story.operator("aten::copy_", Phase.FORWARD, 10, 20, operation=Operation.COPY)
    kind = {"Mem": KernelKind.COPY, "dir": KernelKind.KERNEL}[name[:3]]
    story.kernel(name, 10, 20, span=copied, kind=KernelKind.SET if name.startswith("Memset") else kind)

    idle = spent(story).idle

    assert (idle.copies, idle.total) == pytest.approx((0, 0.25))


@pytest.mark.parametrize("name", ["Memcpy HtoD (Pinned -> Device)", "MemcpyD2H", "Memcpy DtoH", "MemcpyH2D"])
def test_a_copy_from_the_host_or_to_it_is_one(name: str):
    story = story_of("F.F.", "cuda:0")
    for row in story.spans:
        story.kernel(f"of {row[0]}", row[7], row[8], span=row[0])
    story.kernel(name, 10, 20, kind=KernelKind.COPY)

    assert spent(story).idle.copies == pytest.approx(0.25)


def test_a_kernel_of_a_gpu_that_starts_while_the_host_is_between_two_steps_counts():
    story = KernelStory(device="cuda:0")
    story.settle()
    story.step(0, 100, block=1)
    story.step(110, 210, block=1)
    forward = story.operator("f", Phase.FORWARD, 0, 10)
    story.kernel("first", 0, 105, span=forward)
    story.kernel("second", 105, 210, span=forward)
    story.kernel("after", 210, 300, span=forward)

    found = spent(story)

    assert (found.busy, found.covered) == pytest.approx((1, 210 / 200))


def test_a_kernel_that_begins_by_the_gpus_clock_after_the_last_step_is_over_does_no_harm():
    story = KernelStory(device="cuda:0")
    story.settle()
    story.step(0, 100)
    span = story.operator("aten::mm", Phase.FORWARD, 10, 20)
    story.kernel("f", 20, 60, span=span, launch=12)
    story.kernel("g", 130, 150, span=span, launch=15)

    found = spent(story)

    assert found.busy == pytest.approx(0.4)
    assert [(phase.name, phase.seconds) for phase in found.phases if phase.seconds] == [
        ("data", pytest.approx(20e-9)),
        ("forward", pytest.approx(40e-9)),
        ("other", pytest.approx(40e-9)),
    ]


def test_two_threads_at_once_cover_more_than_the_step_and_nothing_overlaps_in_either():
    story = story_of("FFFFFFFFFF")
    story.operator("on another thread", Phase.FORWARD, 0, 100, thread=2)

    found = spent(story)

    assert (found.busy, found.covered, found.overlap) == pytest.approx((1, 2, 0))


def test_threads_in_several_phases_at_once_share_the_time_by_their_number():
    story = KernelStory()
    story.settle()
    story.step(0, 100)
    for thread, phase, start, end in (
        (1, Phase.FORWARD, 0, 60),
        (2, Phase.BACKWARD, 30, 90),
        (3, Phase.BACKWARD, 30, 60),
    ):
        story.operator("op", phase, start, end, thread=thread)
    found = spent(story)
    # Alone until 30; then one of three is in forward until 60; nothing runs after 90.
    seconds = {phase.name: round(phase.busy_seconds * 1e9) for phase in found.phases}
    assert seconds["forward"] == 30 + 30 / 3
    assert seconds["backward"] == 30 * 2 / 3 + 30
    assert sum(phase.seconds for phase in found.phases) == pytest.approx(100e-9)
    assert found.busy == pytest.approx(0.9)
    assert found.covered == pytest.approx(1.5)


def test_a_kernel_reported_twice_is_caught():
    story = story_of("FF..BB..UU")
    story.operator("B", Phase.BACKWARD, 40, 50)

    found = spent(story)

    assert found.overlap == pytest.approx(0.1)
    remark = summarize(story.recording()).missing_now["kernels reported twice"]
    assert remark == "kernels of one thread or stream overlap by 10.0 % of the step"
    assert spent(story_of("FF..BB..UU")).overlap == 0


def random_story(generator: np.random.Generator) -> KernelStory:
    story = KernelStory(device="cuda:0")
    story.settle()
    now = 0
    for _ in range(int(generator.integers(1, 5))):
        length = int(generator.integers(1, 300))
        story.step(now, now + length)
        for _ in range(int(generator.integers(0, 12))):
            begun = now + int(generator.integers(0, length))
            phase = Phase(int(generator.integers(0, 6)))
            span = story.span(SpanKind.OPERATOR, "it", phase, begun, begun)
            story.kernel("it", begun, begun + int(generator.integers(0, 90)), span=span)
        loading = now + int(generator.integers(0, length))
        story.span(SpanKind.PHASE, "loader", Phase.DATA, loading, loading + int(generator.integers(0, 40)))
        now += length + int(generator.integers(0, 20))
    story.kernel("at the end", now - 1, now)
    return story


def covered_ns(story: KernelStory) -> int:
    """Return the time covered by kernels within the counted steps, instant by instant."""
    instants = set()
    for _, _, begin, end, *_ in story.steps[1:]:
        starts = {row for row in story.kernels if any(s[2] <= row[5] < s[3] for s in story.steps[1:])}
        instants |= {at for row in starts for at in range(max(row[5], begin), min(row[6], end))}
    return len(instants)


@pytest.mark.parametrize("seed", range(60))
def test_phases_always_partition_the_steps_to_the_nanosecond(seed):
    story = random_story(np.random.default_rng(seed))
    kernels = gather(story.recording())
    assert kernels is not None

    course = timeline(kernels)

    assert course.length_ns.sum() == kernels.step_ns.sum()
    assert (course.length_ns > 0).all()
    assert course.total_ns(course.busy) == covered_ns(story)
    found = step_time(kernels, course).value
    assert sum(phase.seconds for phase in found.phases) == pytest.approx(found.step_seconds)
    assert found.idle.total == pytest.approx(1 - found.busy)


def test_kernels_a_step_are_what_computes_or_moves_and_no_bookkeeping():
    story = story_of("FFB|FBB")
    story.operator("view", Phase.FORWARD, 2, 4, operation=Operation.BOOKKEEPING)

    found = spent(story)

    assert found.kernels == 3
    assert found.kernel_seconds == pytest.approx(10e-9)
