"""Steps of a training in nanoseconds, with what their operators compute, and peaks that are easily divided by."""

from make import KernelStory, timed_window

from tbdprof.analysis.summary import summarize
from tbdprof.facts.records import Operation, Peaks, Phase
from tbdprof.facts.work import Work
from tbdprof.results.summary import Summary

# 100 FLOP and 10 bytes a nanosecond: the ridge is at 10 FLOP a byte.
PEAKS = Peaks({"fp32": 1e11, "bf16": 4e11}, 1e10, {"fp32": "a probe", "bf16": "the same", "memory": "another"})
US = 1000


def product(flops: int, moved_bytes: int | None = 100, precision: str = "fp32") -> Work:
    sizes = {"batch": 1, "rows": 1, "columns": 1, "inner": flops // 2}
    return Work(Operation.MATMUL, sizes, moved_bytes=moved_bytes, precision=precision)


def relu(elements: int) -> Work:
    return Work(Operation.ACTIVATION, {"elements": elements}, name="relu", moved_bytes=8 * elements)


def training_story(precision: str = "fp32") -> KernelStory:
    """Two steps of 1 ms: products 200 µs and 400 µs, batch_norm 100 µs, relu 100 µs, something else 100 µs."""
    story = KernelStory()
    story.settle()
    for start in (0, 1000 * US):
        story.step(start, start + 1000 * US, units=4)
        fc = story.layer("fc", start + 50 * US, start + 250 * US)
        work = product(16_000_000, precision=precision)
        story.operator("linear", Phase.FORWARD, start + 50 * US, start + 250 * US, parent=fc, forward=7, work=work)
        story.operator("relu", Phase.FORWARD, start + 250 * US, start + 350 * US, work=relu(200_000))
        story.operator("scan", Phase.FORWARD, start + 350 * US, start + 450 * US)
        work = product(20_000_000, precision=precision)
        backward = (start + 450 * US, start + 850 * US)
        story.operator("linear_backward", Phase.BACKWARD, *backward, forward=7, work=work)
    return story


def summary_of(story: KernelStory, **run_changes: object) -> Summary:
    recording = story.recording(**{"peaks": PEAKS, "precision": "fp32", **run_changes})
    recording.windows.append(timed_window(1, "clean", [0.0008, 0.0008], units=4))
    return summarize(recording)
