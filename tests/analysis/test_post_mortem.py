"""The end of a run that ran out of memory: what allocators say, what was live, and the estimate by proportion."""

import make
import pytest
from make import MemoryStory, parameter
from plain_rows import table

from tbdprof.analysis.memory.post_mortem import asked_bytes, examine
from tbdprof.analysis.summary import summarize
from tbdprof.facts.counters import ALLOCATOR_ALLOCATED, ALLOCATOR_FRAGMENTS, ALLOCATOR_RESERVED, DEVICE_FREE
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Optimizer, Phase, Role
from tbdprof.facts.windows import OUT_OF_MEMORY
from tbdprof.hooks import about
from tbdprof.report import json_report, terminal
from tbdprof.results.memory import ESTIMATED, TRIED, PostMortem

GPU = "cuda:0"
MIB, GIB = 1 << 20, 1 << 30
ON_GPU = (
    "CUDA out of memory. Tried to allocate 1.25 GiB. GPU 0 has a total capacity of 95.09 GiB of which 1.11 GiB is free."
    " Including non-PyTorch memory, this process has 93.96 GiB memory in use. Of the allocated memory 89.93 GiB is "
    "allocated by PyTorch, and 3.53 GiB is reserved by PyTorch but unallocated."
)
ON_HOST = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12"
OF_SHAPE = "OOM when allocating tensor with shape"
SMALL = "you tried to allocate 200 bytes"


@pytest.mark.parametrize(
    ("framework", "said", "asked"),
    [
        ("torch", ON_GPU, 1.25 * GIB),
        ("torch", ON_GPU.replace("1.25 GiB", "20.00 MiB"), 20 * MIB),
        ("torch", ON_GPU.replace("1.25 GiB", "512 bytes"), 512),
        ("torch", ON_HOST, 4096),
        ("torch", "std::bad_alloc", None),
        ("tensorflow", f"{OF_SHAPE}[32,64,112,112] and type float on /job:localhost", 4 * 32 * 64 * 112**2),
        ("tensorflow", f"{OF_SHAPE}[] and type double on /job:localhost", 8),
        ("tensorflow", "Out of memory while trying to allocate 4294967296 bytes.", 4 * GIB),
        ("torch", f"you tried to allocate {'9' * 5000} bytes", None),
        ("tensorflow", f"{OF_SHAPE}[{'99999,' * 50_000}] and type float", None),
        ("mxnet", "Failed to allocate CPU Memory", None),
        ("mxnet", "cudaMalloc retry failed: out of memory", None),
    ],
)
def test_what_was_asked_for_is_read_from_the_allocators_words(framework: str, said: str, asked: float | None) -> None:
    assert asked_bytes(said, about(framework).failure_text) == asked


def ended(story: MemoryStory, said: str = SMALL, samples: dict[str, int] | None = None, **facts: object) -> Recording:
    """A run that ended with this in memory."""
    recording = story.recording(asked_for=said, ended_by="OutOfMemoryError", **facts)
    recording.windows[0].name = OUT_OF_MEMORY
    strings, place = story.strings, story.strings.add(make.DEVICE)
    rows = [(strings.add(name), place, 5, float(size), -1) for name, size in (samples or {}).items()]
    recording.windows[0].tables["sample"] = table("sample", rows)
    return recording


def owned_story() -> MemoryStory:
    """A weight of 100, its gradient, its momentum, an input of 60, and 300 bytes nobody owns."""
    story = MemoryStory()
    for size, role in ((100, Role.WEIGHT), (100, Role.GRADIENT), (100, Role.OPTIMIZER_STATE), (60, Role.INPUT)):
        story.own(story.existing(size), role, "w")
    story.existing(300)
    return story


def examined(recording: Recording) -> PostMortem:
    found = examine(recording).value
    assert found is not None
    return found


def live(found: PostMortem) -> dict[str, int]:
    assert found.live is not None
    return {category: size for category, size in found.live.items() if size}


def test_outside_a_memory_window_owners_name_what_they_own_and_the_rest_is_one_sum() -> None:
    found = examined(ended(owned_story()))

    assert live(found) == {"weights": 100, "weight_gradients": 100, "dynamic": 100, "feature_maps": 60}
    assert (found.others_bytes, found.live_bytes, found.separated) == (300, 660, False)
    assert found.asked_bytes == 200


def test_what_the_hosts_allocator_counts_beyond_the_listed_is_not_separated() -> None:
    found = examined(ended(owned_story(), samples={ALLOCATOR_ALLOCATED: 1000}))

    assert (found.others_bytes, found.live_bytes) == (640, 1000)
    assert live(found) == live(examined(ended(owned_story())))


def test_a_gpus_workspaces_are_what_was_let_go_before_the_blocks_were_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "DEVICE", GPU)
    left = {ALLOCATOR_ALLOCATED: 700, ALLOCATOR_RESERVED: 900, ALLOCATOR_FRAGMENTS: 150, DEVICE_FREE: 7}
    found = examined(ended(owned_story(), ON_GPU, left, device=GPU))

    assert live(found)["workspace"] == 40
    assert (found.others_bytes, found.live_bytes) == (300, 700)
    assert (found.cache_bytes, found.fragments_bytes, found.releasable_bytes) == (200, 150, 50)
    assert (found.capacity_bytes, found.free_bytes) == (round(95.09 * GIB), round(1.11 * GIB))
    assert not found.is_fragmented


def test_as_much_as_was_asked_for_in_pieces_is_fragmentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "DEVICE", GPU)
    left = {ALLOCATOR_ALLOCATED: 700, ALLOCATOR_RESERVED: 900, ALLOCATOR_FRAGMENTS: 200}
    recording = ended(owned_story(), SMALL, left, device=GPU)

    assert examined(recording).is_fragmented
    assert "expandable_segments:True" in terminal.render(summarize(recording), width=200)


def test_the_hosts_memory_running_out_under_a_run_on_a_gpu_is_reported_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "DEVICE", GPU)
    summary = summarize(ended(owned_story(), ON_HOST, {ALLOCATOR_RESERVED: 900}, device=GPU))

    assert summary.post_mortem is not None
    assert (summary.post_mortem.live, summary.post_mortem.cache_bytes) == (None, None)
    assert "host memory ran out" in summary.missing["post_mortem.live"]


def failed_step(story: MemoryStory, *, frees: bool = False) -> tuple[Window, Window]:
    """A memory window that ended within its second step, and what was read then: the gradient's owner is new.

    With `frees` the first step's map is freed before the failure, and the second's by it.
    """
    weight = story.existing(100)
    with story.phase(Phase.FORWARD):
        maps = [story.allocate(40)]
    story.own(weight, Role.WEIGHT, "w")
    story.mark()
    with story.phase(Phase.FORWARD), story.operator("conv", Phase.FORWARD):
        story.free(story.allocate(500, was_tensor=0))
        maps.append(story.allocate(80))
    with story.phase(Phase.BACKWARD), story.operator("conv_backward", Phase.BACKWARD):
        gradient = story.allocate(100)
        story.allocate(30)
    for each in maps if frees else ():
        story.free(each)
    opened = story.window(0)
    opened.state = "cut short"
    last = MemoryStory()
    last.strings = story.strings
    for address, size in ((weight, 100), (gradient, 100)):
        last.existing(size, address=address)
    last.own(weight, Role.WEIGHT, "w")
    last.own(gradient, Role.GRADIENT, "w")
    after = last.window(1)
    after.name = OUT_OF_MEMORY
    return opened, after


def test_in_a_memory_window_all_is_separated_as_it_was_at_the_last_allocation() -> None:
    story = MemoryStory(base_total=100)
    windows = failed_step(story)
    found = examined(Recording(make.run(asked_for=SMALL), list(windows), story.strings))

    # The maps of both steps, 40 + 80, and the map's gradient of 30; the scratch of 500 was gone before.
    assert live(found) == {"weights": 100, "weight_gradients": 100, "feature_maps": 150}
    assert (found.others_bytes, found.live_bytes, found.separated) == (0, 350, True)


@pytest.mark.parametrize(("live_bytes", "maps"), [(350, 150), (310, 110), (230, 30), (999, 150)])
def test_what_was_live_is_what_the_allocator_says_it_had(live_bytes: int, maps: int) -> None:
    story = MemoryStory(base_total=100)
    windows = failed_step(story, frees=True)
    said = f"{SMALL}. Of the allocated memory {live_bytes} bytes is allocated by PyTorch"
    found = examined(Recording(make.run(asked_for=said), list(windows), story.strings))

    assert live(found) == {"weights": 100, "weight_gradients": 100, "feature_maps": maps}


SGD = Optimizer("sgd", ("w",), {"momentum": 0.9})


@pytest.mark.parametrize(
    ("batch", "free", "fits"),
    [
        (10, 0, 6),  # 660 of room less 300 fixed are 360; a step of 10 needs at least 660 + 200 − 300 = 560: 6.4
        (10, 100, 8),  # 460 of 560
        (10, 10_000, 9),  # never the batch that failed
        (1, 0, None),
        (None, 100, None),
    ],
)
def test_the_estimate_is_by_proportion_of_what_grows_with_the_batch(
    batch: int | None, free: int, fits: int | None
) -> None:
    recording = ended(
        owned_story(), samples={DEVICE_FREE: free}, batch_size=batch, unit="samples",
        parameters=(parameter("w", 25),), optimizers=(SGD,),
    )  # fmt: skip
    found = examined(recording)

    assert (found.fitting_batch, found.found_by) == (fits, None if fits is None else ESTIMATED)


def test_what_is_fixed_counts_before_it_is_there() -> None:
    """In the first step there are no gradients and no state yet, which will take 200 of the room."""
    story = MemoryStory()
    story.own(story.existing(100), Role.WEIGHT, "w")
    story.existing(300)
    facts = {"batch_size": 10, "parameters": (parameter("w", 25),), "optimizers": (SGD,)}
    found = examined(ended(story, samples={DEVICE_FREE: 50}, **facts))

    # Room: 400 + 50 − 300 = 150; growing: 400 + 200 − 100 = 500.
    assert found.fitting_batch == 3


def test_a_batch_that_was_tried_goes_before_an_estimate() -> None:
    facts = {"batch_size": 10, "fitting_batch": 5, "batch_peaks": {"2": 300, "5": 600}, "batch_room_bytes": 700}
    recording = ended(owned_story(), samples={DEVICE_FREE: 100}, **facts)
    found = examined(recording)

    assert (found.fitting_batch, found.found_by, found.peaks) == (5, TRIED, {2: 300, 5: 600})
    text = terminal.render(summarize(recording), width=120)
    assert text.startswith("out of memory\n" + SMALL)
    assert "--batch-size 5, tried in a process of its own: 600 B of 700 B" in text


def test_where_no_batch_fits_that_was_tried_none_is_estimated() -> None:
    facts = {"batch_size": 10, "batch_room_bytes": 700, "parameters": (parameter("w", 25),), "optimizers": (SGD,)}
    found = summarize(ended(owned_story(), samples={DEVICE_FREE: 100}, **facts))

    assert found.post_mortem is not None
    assert found.post_mortem.fitting_batch is None
    assert found.missing["post_mortem.fitting_batch"] == "no batch that was tried fits"


def test_a_run_that_ended_otherwise_has_no_post_mortem() -> None:
    summary = summarize(MemoryStory().recording())

    assert summary.post_mortem is None
    assert summary.missing["post_mortem"] not in summary.missing_now.values()


def test_the_json_has_every_part_or_why_not() -> None:
    document = json_report.document(summarize(ended(owned_story(), "Failed to allocate CPU Memory")))
    ending, missing = document["post_mortem"], document["missing"]

    assert (ending["live"]["weights"], ending["others"]) == (100, 300)
    assert {name for name, value in ending.items() if value is None} - {"found_by"} == {
        path.removeprefix("post_mortem.") for path in missing if path.startswith("post_mortem.")
    }
