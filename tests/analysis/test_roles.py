"""Every rule of classification, on the shortest story that calls for it."""

import numpy as np
import pytest
from make import MemoryStory

from tbdprof.analysis.memory.blocks import lifetimes
from tbdprof.analysis.memory.roles import classify, owned, with_earlier_batches
from tbdprof.analysis.spans import SpanTree
from tbdprof.facts.records import Operation, Phase, Role, SpanKind
from tbdprof.results.memory import CATEGORIES


def role_of(story: MemoryStory, address: int) -> Role:
    window = story.window()
    blocks, _ = lifetimes(window.table("allocation"))
    owners, tree = window.table("owner"), SpanTree(window.table("span"))
    named = with_earlier_batches(owned(blocks, owners), blocks, owners, tree)
    roles = classify(blocks, named, tree, np.array(story.marks))
    (place,) = np.flatnonzero(blocks.address == address)
    return Role(int(roles[place]))


def test_every_role_belongs_to_exactly_one_category():
    listed = [role for roles in CATEGORIES.values() for role in roles]

    assert sorted(listed) == sorted(Role)


@pytest.mark.parametrize(
    "role",
    [Role.WEIGHT, Role.BUFFER, Role.GRADIENT, Role.OPTIMIZER_STATE, Role.INPUT, Role.WORKSPACE],
)
def test_an_owner_names_a_block_over_its_whole_life(role):
    story = MemoryStory()
    address = story.allocate(4)
    story.mark()
    story.own(address, role, "it")

    assert role_of(story, address) == role


def test_a_weight_that_is_also_read_as_input_is_a_weight():
    story = MemoryStory()
    address = story.existing(4)
    story.own(address, Role.INPUT)
    story.own(address, Role.WEIGHT, "w")
    story.own(address, Role.INPUT)

    assert role_of(story, address) == Role.WEIGHT


@pytest.mark.parametrize(
    ("size", "holder", "phase", "role"),
    [
        (64, Role.UNKNOWN, Phase.DATA, Role.INPUT),
        (60, Role.UNKNOWN, Phase.DATA, Role.DYNAMIC),  # as large as no batch
        (64, None, Phase.DATA, Role.DYNAMIC),  # the program holds it
        (64, Role.WEIGHT, Phase.DATA, Role.WEIGHT),
        (64, Role.UNKNOWN, Phase.OUTSIDE, Role.DYNAMIC),  # the other was not loaded
    ],
)
def test_a_batch_loaded_before_the_window_is_as_large_as_a_later_one_and_held_by_the_framework_alone(
    size: int, holder: Role | None, phase: Phase, role: Role
):
    story = MemoryStory()
    earlier = story.existing(size)
    if holder is not None:
        story.own(earlier, holder)
    with story.phase(phase):
        story.own(story.allocate(64), Role.INPUT, "tf.data")

    assert role_of(story, earlier) == role


def test_an_owner_read_after_the_block_was_freed_does_not_name_it():
    story = MemoryStory()
    with story.phase(Phase.FORWARD):
        address = story.allocate(4)
    story.free(address)
    story.own(address, Role.WEIGHT, "w")

    assert role_of(story, address) == Role.FEATURE_MAP


def test_made_and_freed_in_one_operator_is_workspace_and_temporary_if_it_was_a_tensor():
    story = MemoryStory()
    with story.phase(Phase.FORWARD), story.operator("conv", Phase.FORWARD):
        scratch = story.allocate(4, was_tensor=0)
        tensor = story.allocate(4)
        story.free(scratch)
        story.free(tensor)

    assert role_of(story, scratch) == Role.WORKSPACE
    assert role_of(story, tensor) == Role.TEMPORARY


def test_made_in_one_operator_and_freed_in_a_later_one_is_a_feature_map():
    story = MemoryStory()
    with story.phase(Phase.FORWARD):
        with story.operator("conv", Phase.FORWARD):
            address = story.allocate(4)
        with story.operator("relu", Phase.FORWARD):
            story.free(address)

    assert role_of(story, address) == Role.FEATURE_MAP


def test_an_operator_of_another_thread_does_not_hold_the_free():
    story = MemoryStory()
    with story.operator("conv", Phase.FORWARD, thread=2):
        address = story.allocate(4, was_tensor=0)
        story.free(address)  # frees are reported on thread 1

    assert role_of(story, address) == Role.FEATURE_MAP


def test_backward_makes_gradient_maps_and_what_accumulation_frees_is_gradient():
    story = MemoryStory()
    with story.phase(Phase.BACKWARD):
        with story.operator("conv_backward", Phase.BACKWARD):
            error = story.allocate(4)
            partial = story.allocate(4)
        with story.operator("accumulate", Phase.BACKWARD, operation=Operation.ACCUMULATE):
            story.free(partial)
    story.free(error)

    assert role_of(story, error) == Role.GRADIENT_MAP
    assert role_of(story, partial) == Role.GRADIENT


def test_recomputed_maps_are_not_workspace_of_the_backward_operator_around_them():
    story = MemoryStory()
    with story.phase(Phase.BACKWARD), story.operator("checkpoint_backward", Phase.BACKWARD):
        with story.operator("relu", Phase.RECOMPUTE):
            address = story.allocate(4)
        story.free(address)

    assert role_of(story, address) == Role.RECOMPUTED


def test_inside_a_compiled_region_memory_is_the_regions():
    story = MemoryStory()
    with (
        story.phase(Phase.BACKWARD),
        story.operator("region", Phase.BACKWARD, operation=Operation.COMPILED),
    ):
        inside = story.allocate(4)
        story.free(inside)

    assert role_of(story, inside) == Role.COMPILED


def test_what_a_compiled_backward_pass_hands_on_is_a_gradient_map():
    story = MemoryStory()
    with story.phase(Phase.BACKWARD):
        with story.operator("region", Phase.BACKWARD, operation=Operation.COMPILED):
            inside, handed_on = story.allocate(4), story.allocate(8)
            story.free(inside)
        with story.operator("next region", Phase.BACKWARD, operation=Operation.COMPILED):
            story.free(handed_on)

    assert role_of(story, inside) == Role.COMPILED
    assert role_of(story, handed_on) == Role.GRADIENT_MAP


def test_a_cast_of_a_weight_is_a_weight_and_a_cast_of_an_activation_is_not():
    story = MemoryStory()
    weight = story.existing(8)
    story.own(weight, Role.WEIGHT, "w")
    with story.phase(Phase.FORWARD):
        with story.operator("to", Phase.FORWARD, operation=Operation.CAST, operand=weight):
            of_weight = story.allocate(4)
        activation = story.allocate(8)
        with story.operator("to", Phase.FORWARD, operation=Operation.CAST, operand=activation):
            of_activation = story.allocate(4)

    assert role_of(story, of_weight) == Role.CAST
    assert role_of(story, of_activation) == Role.FEATURE_MAP


def test_what_the_update_makes_is_dynamic():
    story = MemoryStory()
    with story.phase(Phase.UPDATE):
        address = story.allocate(4)
    story.free(address)

    assert role_of(story, address) == Role.DYNAMIC


def test_made_outside_and_there_when_forward_begins_is_input_else_dynamic():
    story = MemoryStory()
    labels = story.allocate(4)
    message = story.allocate(4)
    story.free(message)
    with story.phase(Phase.FORWARD):
        pass
    story.free(labels)

    assert role_of(story, labels) == Role.INPUT
    assert role_of(story, message) == Role.DYNAMIC


def test_made_between_an_update_and_the_end_of_its_step_is_dynamic_even_if_the_next_forward_finds_it():
    story = MemoryStory()
    with story.phase(Phase.UPDATE):
        pass
    average = story.allocate(4)
    story.mark()
    images = story.allocate(4)
    with story.phase(Phase.FORWARD):
        pass
    story.free(average)
    story.free(images)

    assert role_of(story, average) == Role.DYNAMIC
    assert role_of(story, images) == Role.INPUT


def test_kept_through_two_steps_is_dynamic_and_a_librarys_own_is_workspace():
    story = MemoryStory()
    with story.phase(Phase.FORWARD):
        cache = story.allocate(4)
        library = story.allocate(4, was_tensor=0)
        loss = story.allocate(4)
    story.mark()
    story.free(loss)
    story.mark()

    assert role_of(story, cache) == Role.DYNAMIC
    assert role_of(story, library) == Role.WORKSPACE
    assert role_of(story, loss) == Role.FEATURE_MAP


def test_an_existing_tensor_nobody_owns_is_dynamic_and_what_never_was_seen_is_unknown():
    story = MemoryStory()
    average = story.existing(4)
    something = story.existing(4, was_tensor=-1)

    assert role_of(story, average) == Role.DYNAMIC
    assert role_of(story, something) == Role.UNKNOWN


def test_a_planners_pool_is_planned_even_if_it_was_there_before():
    story = MemoryStory()
    with story.operator("CachedOp", Phase.FORWARD, operation=Operation.PLANNED):
        pool = story.existing(4, was_tensor=-1)

    assert role_of(story, pool) == Role.PLANNED


def test_what_one_network_hands_to_the_next_is_a_feature_map_but_data_made_between_them_is_input():
    story = MemoryStory()
    with story.phase(Phase.FORWARD):
        with story.span(SpanKind.LAYER, "generator", Phase.FORWARD):
            fake = story.allocate(4)
        story.own(fake, Role.INPUT)
        real = story.allocate(4)
        with story.span(SpanKind.LAYER, "critic", Phase.FORWARD):
            story.own(real, Role.INPUT)

    assert role_of(story, fake) == Role.FEATURE_MAP
    assert role_of(story, real) == Role.INPUT


def test_where_no_layers_are_reported_an_input_made_in_forward_is_not_believed():
    story = MemoryStory()
    with story.phase(Phase.FORWARD):
        output = story.allocate(4)
        story.own(output, Role.INPUT)

    assert role_of(story, output) == Role.FEATURE_MAP
