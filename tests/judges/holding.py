"""What must hold of every training run, whatever the framework: it adds up, and sizes are arithmetic on shapes."""

import math

from judges.process import Json, Outcome

ITEM = 4  # bytes of a float32


def trained_bytes(facts: Json) -> int:
    """Return the bytes of the parameters."""
    return sum(ITEM * math.prod(shape) for shape in facts["parameters"])


def assert_adds_up(memory: Json) -> None:
    """Assert that nothing is unknown, nothing violated, and every breakdown's sum is the peak."""
    peak = memory["allocator_peak_bytes"]
    assert memory["independent_peak_bytes"] in (peak, None)
    assert memory["mismatches"] == 0, memory["violations"]
    assert memory["roles_at_peak"]["unknown"] == memory["roles_max"]["unknown"] == 0
    assert sum(memory["at_peak"].values()) == sum(memory["roles_at_peak"].values()) == peak
    assert sum(layer["bytes"] for layer in memory["by_layer"]) == peak
    assert memory["outside_allocator_bytes"] == 0


def assert_sizes(outcome: Outcome, *, arrays: int, counter_bytes: int = 0) -> None:
    """Assert the sizes of weights, buffers, gradients and optimizer state.

    The optimizer keeps so many arrays of a parameter's size, and a counter of some bytes for each.
    """
    memory, trained = outcome.memory, trained_bytes(outcome.facts)
    state = arrays * trained + counter_bytes * len(outcome.facts["parameters"])
    for roles in (memory["roles_at_peak"], memory["roles_max"], memory["at_optimizer_step"]):
        assert roles["weight"] == trained
        assert roles["buffer"] == outcome.facts["buffer_bytes"]
        assert roles["optimizer_state"] == state
    assert memory["at_optimizer_step"]["gradient"] == trained
    assert outcome.report["run"]["parameters"] * ITEM == trained


def assert_holds(outcome: Outcome, *, complete: bool = True, arrays: int, counter_bytes: int = 0) -> None:
    """Assert all of it, and that the framework's own total says the same."""
    assert outcome.report["run"]["complete"] is complete
    assert_adds_up(outcome.memory)
    assert outcome.memory["independent_peak_bytes"] == outcome.memory["allocator_peak_bytes"]
    assert_sizes(outcome, arrays=arrays, counter_bytes=counter_bytes)
