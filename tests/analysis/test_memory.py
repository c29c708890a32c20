"""Peak and breakdown: hand-worked numbers on short stories."""

import numpy as np
from make import MemoryStory, run
from memory_story import PARAMETERS, forward_operator, measured, training, training_step

from tbdprof.analysis.summary import summarize
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Operation, Phase, Role


def test_the_breakdown_is_taken_at_the_peak():
    memory = measured(training().recording(parameters=PARAMETERS))

    assert memory.allocator_peak_bytes == 440
    assert {role.name: size for role, size in memory.roles_at_peak.items() if size} == {
        "WEIGHT": 100,
        "FEATURE_MAP": 40,
        "WORKSPACE": 300,
    }
    assert memory.independent_peak_bytes == 440
    assert memory.mismatches == 0
    assert memory.rounding_at_peak_bytes == 0


def test_the_largest_each_category_ever_was_need_not_be_at_the_peak():
    memory = measured(training().recording(parameters=PARAMETERS))

    assert memory.category_max == {
        "weights": 100,
        "weight_gradients": 100,
        "feature_maps": 60,
        "workspace": 300,
        "dynamic": 50,
        "unknown": 0,
    }


def test_categories_add_up_after_every_event():
    memory = measured(training().recording())

    total = np.sum(list(memory.timeline.categories.values()), axis=0)
    assert total.max() == memory.allocator_peak_bytes
    assert (total >= 100).all()


def test_gradients_are_counted_where_the_optimizer_begins():
    memory = measured(training().recording())

    assert memory.at_optimizer_step is not None
    assert memory.at_optimizer_step[Role.GRADIENT] == 100
    assert memory.at_optimizer_step[Role.FEATURE_MAP] == 0


def test_the_first_step_of_a_window_settles_and_does_not_count():
    story = MemoryStory(base_total=100)
    weight = story.existing(100)
    outlier = story.allocate(5000)
    story.free(outlier)
    for _ in range(3):
        training_step(story, weight)

    assert measured(story.recording()).allocator_peak_bytes == 440


def test_holdings_name_layer_and_operator_and_add_up_by_layer():
    memory = measured(training().recording())

    largest = memory.top_at_peak[0]
    assert (largest.role, largest.layer, largest.operator, largest.size_bytes) == (
        Role.WORKSPACE,
        "fc",
        "addmm",
        300,
    )
    assert memory.top_at_peak[1].name == "fc.weight"
    assert dict(memory.by_layer) == {"fc": 440}


def test_what_backward_makes_belongs_to_the_layer_of_its_forward_operator():
    story = MemoryStory()
    with forward_operator(story):
        pass
    with story.phase(Phase.BACKWARD), story.operator("addmm_backward", Phase.BACKWARD, forward=7):
        story.allocate(500)
    story.mark()

    (holding,) = measured(story.recording()).top_at_peak
    assert (holding.role, holding.layer) == (Role.GRADIENT_MAP, "fc")


def test_memory_only_the_total_reports_is_unknown_and_shown():
    story = training(1)
    story.unseen(1000)
    training_step(story, story.allocations[0][4])

    memory = measured(story.recording())

    assert memory.roles_at_peak[Role.UNKNOWN] == 1000
    assert memory.independent_peak_bytes == memory.peak_bytes == sum(memory.roles_at_peak.values()) == 1440
    assert memory.allocator_peak_bytes == 440
    assert dict(memory.by_layer) == {None: 1000, "fc": 440}
    assert memory.mismatches == 0


def never_reported(size: int) -> MemoryStory:
    story = training()
    story.allocations = [row for row in story.allocations if row[5] != size]
    return story


def test_blocks_nobody_reported_keep_the_allocators_peak_from_the_frameworks_own():
    memory = measured(never_reported(300).recording(threads=1))

    assert memory.independent_peak_bytes == sum(memory.roles_at_peak.values()) == 440
    assert memory.roles_at_peak[Role.UNKNOWN] == 300
    assert memory.allocator_peak_bytes == 100 + 100 + 40 + 20


def test_on_several_threads_what_only_the_total_reports_within_one_operator_is_explained_as_workspace():
    memory = measured(never_reported(300).recording(threads=2))

    assert memory.roles_at_peak[Role.WORKSPACE] == 300
    assert memory.allocator_peak_bytes == memory.independent_peak_bytes == 440


def test_the_breakdown_is_taken_where_the_frameworks_total_is_highest():
    story = training(2)
    story.unseen(500)
    story.allocate(5)
    story.unseen(-500)
    story.mark()

    memory = measured(story.recording())

    assert memory.allocator_peak_bytes == 440
    assert memory.independent_peak_bytes == sum(memory.roles_at_peak.values()) == 605
    assert memory.roles_at_peak[Role.UNKNOWN] == 500


def test_of_several_windows_the_highest_peak_is_broken_down_and_mistakes_of_all_count():
    larger, last = MemoryStory(base_total=160), training()
    weight, _ = larger.existing(100), larger.existing(60)
    for _ in range(3):
        training_step(larger, weight)
    larger.marks.append(larger.sequence + 1)
    del last.allocations[next(place for place, row in enumerate(last.allocations) if row[1] == 0)]
    single = measured(last.recording())

    both = measured(Recording(run(), [larger.window(1), last.window(3)], larger.strings))

    assert single.mismatches > 0
    assert (both.mismatches, both.violations) == (single.mismatches, single.violations)
    assert both.independent_peak_bytes == sum(both.roles_at_peak.values()) == 500
    assert both.roles_max[Role.DYNAMIC] == 60 + 50
    assert both.roles_max[Role.WORKSPACE] == single.roles_max[Role.WORKSPACE] == 600
    assert both.events == single.events + len(larger.allocations) - 2
    assert (both.steps, both.timeline.steps) == (2 + 3, 3)


def test_a_window_that_ended_before_it_settled_gives_no_peak_where_another_did():
    settled, cut = training(), MemoryStory(base_total=100)
    weight = cut.existing(100)
    cut.free(cut.allocate(5000))
    training_step(cut, weight)

    memory = measured(Recording(run(), [settled.window(1), cut.window(3)], settled.strings))

    assert memory.peak_bytes == memory.allocator_peak_bytes == 440


def on_another_device(story: MemoryStory, table: str) -> None:
    """Move the last row of a table to another device."""
    rows = getattr(story, table)
    place = 1 if table == "owners" else 2
    rows[-1] = (*rows[-1][:place], story.strings.add("cuda:1"), *rows[-1][place + 1 :])


def test_an_owner_on_another_device_names_nothing_on_this_one():
    story = MemoryStory(base_total=160)
    average, weight = story.existing(60), story.existing(100)
    for _ in range(2):
        training_step(story, weight)
    for address in (average, 0xDEAD):
        story.own(address, Role.INPUT, "of another device", size=60)
        on_another_device(story, "owners")

    memory = measured(story.recording(parameters=PARAMETERS))

    assert memory.roles_max[Role.INPUT] == memory.outside_allocator_bytes == 0
    assert memory.roles_at_peak[Role.DYNAMIC] == 60


def test_events_of_other_devices_are_left_out_and_said_to_be():
    story = training()
    before = measured(story.recording())
    for _ in range(2):
        story.allocate(10**6)
        on_another_device(story, "allocations")
        story.unseen(-(10**6))

    summary = summarize(story.recording())

    assert summary.memory is not None
    assert summary.memory.events == before.events
    assert summary.memory.allocator_peak_bytes == 440
    assert summary.missing_now["other devices"] == "left out: 2 events of cuda:1; only one device is reported, cpu"
    assert "other devices" not in summarize(training().recording()).missing


def test_what_was_there_before_and_nobody_named_is_unknown():
    story = MemoryStory(base_total=700)
    weight = story.existing(100)
    training_step(story, weight)

    assert measured(story.recording()).roles_at_peak[Role.UNKNOWN] == 600


def test_where_counting_began_late_only_what_came_since_can_be_unknown():
    story = MemoryStory(base_total=0)
    weight = story.existing(100)
    training_step(story, weight)
    story.unseen(30)
    training_step(story, weight)

    memory = measured(story.recording(independent_total="counting began late"))

    assert memory.independent_peak_bytes is None
    assert memory.roles_at_peak[Role.UNKNOWN] == 30
    assert memory.allocator_peak_bytes == 470


def test_rounding_is_allocated_minus_requested():
    story = training()
    story.allocations = [(*row[:5], row[5] - 8, *row[6:]) if row[5] == 300 else row for row in story.allocations]

    memory = measured(story.recording())

    assert memory.rounding_at_peak_bytes == 8
    assert memory.roles_at_peak[Role.WORKSPACE] == 292
    assert memory.allocator_peak_bytes == 440
    assert memory.mismatches == 0


def test_rounding_is_not_reported_where_only_what_was_requested_is():
    story = training()
    story.allocations = [(*row[:6], -1, *row[7:]) for row in story.allocations]

    memory = measured(story.recording())

    assert (memory.rounding_at_peak_bytes, memory.rounding_max_bytes) == (None, None)
    assert memory.allocator_peak_bytes == 440


def test_without_a_total_there_is_no_independent_peak_and_nothing_is_guessed():
    story = MemoryStory(counts=False)
    weight = story.existing(100)
    training_step(story, weight)
    training_step(story, weight)

    memory = measured(story.recording())

    assert memory.independent_peak_bytes is None
    assert memory.roles_at_peak[Role.UNKNOWN] == 0
    assert memory.allocator_peak_bytes == 440


def test_a_window_in_which_no_memory_came_or_went_says_so():
    story = MemoryStory(base_total=100)
    story.existing(100)
    story.mark()
    story.mark()

    summary = summarize(story.recording())

    assert summary.memory is None
    assert summary.missing["memory"] == "no memory came or went in the window"


def test_where_only_the_first_step_has_events_they_count():
    story = MemoryStory(base_total=0)
    story.allocate(70)
    story.mark()
    story.mark()

    assert measured(story.recording()).allocator_peak_bytes == 70


def test_a_planned_pool_is_shown_as_such():
    story = MemoryStory(base_total=64)
    with story.operator("CachedOp", Phase.FORWARD, operation=Operation.PLANNED):
        story.existing(64, was_tensor=-1)
    training_step(story, story.allocate(100))

    assert measured(story.recording()).roles_at_peak[Role.PLANNED] == 64
