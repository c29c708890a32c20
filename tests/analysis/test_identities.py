"""What must hold in every recording of memory: planted mistakes are found."""

import pytest
from make import MemoryStory, parameter
from memory_story import PARAMETERS, measured, training, training_step

from tbdprof.facts.records import Optimizer, Role


def test_a_lost_free_is_a_mismatch():
    story = training()
    place = next(place for place, row in enumerate(story.allocations) if row[1] == 0)
    del story.allocations[place]

    memory = measured(story.recording())

    assert memory.mismatches > 0
    assert "exceed the framework's total" in memory.violations[0]
    assert memory.roles_max[Role.UNKNOWN] == 0


def test_a_lost_allocation_is_unknown_not_silence():
    story = training()
    peak_row = next(place for place, row in enumerate(story.allocations) if row[5] == 300 and row[0] > story.marks[0])
    del story.allocations[peak_row]

    assert measured(story.recording()).category_max["unknown"] == 300


def test_a_weight_of_the_wrong_size_is_a_violation():
    memory = measured(training().recording(parameters=(parameter("fc.weight", 26),)))

    assert set(memory.violations) == {
        "weight fc.weight holds 100 bytes, its shape says 104",
        "gradient fc.weight holds 100 bytes, its shape says 104",
    }
    assert memory.mismatches == 2


@pytest.mark.parametrize(
    ("name", "is_violation"), [("fc.bias", True), ("fc.bias/values", True), ("average.fc.weight", False)]
)
def test_weights_hold_no_more_than_the_list_unless_a_model_was_gone_when_it_was_made(name: str, is_violation: bool):
    story = MemoryStory(base_total=200)
    weight, more = story.existing(100), story.existing(100)
    training_step(story, weight)
    story.sequence -= 1
    story.own(more, Role.WEIGHT, name)

    memory = measured(story.recording(parameters=(*PARAMETERS, parameter("fc.bias", 5))))

    said = "weights hold 200 bytes, the parameter list says 120"
    assert (said in memory.violations) is is_violation


def test_optimizer_state_is_what_the_optimizers_definition_says():
    def adam_with(second_moment_bytes: int) -> MemoryStory:
        story = MemoryStory(base_total=300)
        weight = story.existing(100)
        first, second = story.existing(100), story.existing(second_moment_bytes)
        training_step(story, weight)
        at = story.sequence
        for address, slot in ((first, "exp_avg"), (second, "exp_avg_sq")):
            story.sequence = at
            story.own(address, Role.OPTIMIZER_STATE, f"fc.weight/{slot}")
        return story

    adam = (Optimizer("adam", ("fc.weight",)),)

    assert measured(adam_with(100).recording(parameters=PARAMETERS, optimizers=adam)).mismatches == 0
    wrong = measured(adam_with(96).recording(parameters=PARAMETERS, optimizers=adam))
    assert wrong.violations[-1] == "optimizer state of fc.weight holds 196 bytes, adam says 200"


def test_state_that_two_optimizers_keep_for_one_parameter_is_not_judged_by_the_definition_of_one():
    story = MemoryStory(base_total=400)
    weight = story.existing(100)
    slots = [story.existing(100) for _ in range(3)]
    training_step(story, weight)
    at = story.sequence
    for address, slot in zip(slots, ("exp_avg", "exp_avg_sq", "slow"), strict=True):
        story.sequence = at
        story.own(address, Role.OPTIMIZER_STATE, f"fc.weight/{slot}")
    adam, around = Optimizer("adam", ("fc.weight",)), Optimizer("Lookahead", ("fc.weight",))

    assert measured(story.recording(parameters=PARAMETERS, optimizers=(adam,))).mismatches == 1
    assert measured(story.recording(parameters=PARAMETERS, optimizers=(around, adam))).mismatches == 0


def test_a_peak_above_the_frameworks_own_is_a_violation():
    assert measured(training().recording(whole_run_peak_bytes=440)).mismatches == 0
    assert measured(training().recording(whole_run_peak_bytes=439)).mismatches == 1


def test_owned_memory_the_allocator_never_gave_is_separate():
    story = training()
    story.own(0xDEAD, Role.INPUT, "numpy's", size=64)

    memory = measured(story.recording())

    assert memory.outside_allocator_bytes == 64
    assert memory.roles_at_peak[Role.INPUT] == 0


def test_memory_outside_the_allocator_is_the_most_that_was_held_at_a_time():
    story = training()
    for size in (64, 80, 32):  # as a data loader's batches, each gone when the next comes
        story.own(0xDEAD + size, Role.INPUT, "images", size=size)
        story.sequence -= 1
        story.own(0xBEEF + size, Role.INPUT, "labels", size=4)

    story.own(0xABC, Role.WEIGHT, "shared", size=50)

    memory = measured(story.recording())
    assert memory.outside_allocator_bytes == 84
    assert memory.outside_allocator_max == {Role.INPUT: 84, Role.WEIGHT: 50}
