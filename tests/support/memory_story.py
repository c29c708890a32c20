"""Steps of a training whose memory is reported event by event: one layer of 100 bytes, its maps and its gradient."""

from collections.abc import Iterator
from contextlib import contextmanager

from make import MemoryStory, parameter

from tbdprof.analysis.memory.breakdown import measure
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Phase, Role, SpanKind


@contextmanager
def forward_operator(story: MemoryStory) -> Iterator[None]:
    layer = story.span(SpanKind.LAYER, "fc", Phase.FORWARD)
    with story.phase(Phase.FORWARD), layer, story.operator("addmm", Phase.FORWARD, forward=7):
        yield


def training_step(story: MemoryStory, weight: int) -> None:
    with forward_operator(story):
        scratch = story.allocate(300, was_tensor=0)
        output = story.allocate(40)
        story.free(scratch)
    with story.phase(Phase.BACKWARD), story.operator("addmm_backward", Phase.BACKWARD, forward=7):
        gradient = story.allocate(100)
        error = story.allocate(20)
    story.free(output)
    story.free(error)
    with story.phase(Phase.UPDATE):
        story.own(gradient, Role.GRADIENT, "fc.weight")
        update = story.allocate(50)
        story.free(update)
    story.own(weight, Role.WEIGHT, "fc.weight")
    story.free(gradient)
    story.mark()


def training(steps: int = 3) -> MemoryStory:
    story = MemoryStory(base_total=100)
    weight = story.existing(100)
    for _ in range(steps):
        training_step(story, weight)
    return story


def measured(recording: Recording):
    memory = measure(recording).value
    assert memory is not None
    return memory


PARAMETERS = (parameter("fc.weight", 25),)
