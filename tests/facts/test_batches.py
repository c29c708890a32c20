"""How much a step is given, from the calls of models and the backward passes between them."""

import pytest

from tbdprof.facts.batches import Batches

Calls = list[tuple[str, tuple[int, ...]] | None]  # None: a backward pass


def given(calls: Calls, **options: bool) -> dict[str, float]:
    batches = Batches()
    for each in calls:
        if each is None:
            batches.passed()
        else:
            batches.called(each[0], each[1], **options)
    batches.step_ended()
    (step,) = batches.take()
    return dict(step)


@pytest.mark.parametrize(
    ("calls", "samples"),
    [
        ([("net", (8, 3)), None], 8),
        ([("net", (8, 3)), None, ("net", (8, 3)), None], 16),  # micro-batches
        ([("cell", (8, 3))] * 5 + [None], 8),  # a network that is called for each time step
        ([("net", (100, 3)), ("net", (8, 3)), None], 8),  # an evaluation before
        ([("net", (8, 3)), None, ("net", (100, 3))], 8),  # an evaluation after
        ([("net", (8, 3))], 8),  # no backward pass is seen
        ([("critic", (8,)), ("maker", (8,)), ("critic", (8,)), None, ("critic", (8,)), None], 8),
        ([("net", ()), None], None),
        ([("net", (0, 3)), None], None),
        ([], None),
    ],
)
def test_a_step_has_what_its_backward_passes_consume(calls: Calls, samples: int | None):
    assert given(calls) == ({} if samples is None else {"samples": samples})


def test_integers_of_two_dimensions_are_tokens():
    assert given([("net", (8, 64)), None], is_tokens=True) == {"samples": 8, "tokens": 512}
    assert given([("net", (8,)), None], is_tokens=True) == {"samples": 8}
    assert given([("net", (8, 1)), None], is_tokens=True) == {"samples": 8}


def test_a_layer_by_itself_counts_only_where_no_model_is_called():
    batches = Batches()
    batches.called("net", (8, 3))
    batches.called("head", (2, 3), is_layer=True)
    batches.step_ended()
    batches.called("head", (2, 3), is_layer=True)
    batches.step_ended()
    assert batches.take() == [{"samples": 8}, {"samples": 2}]


def test_each_device_has_its_share_of_a_batch():
    batches = Batches()
    for part in ("cpu(0)", "cpu(1)"):
        batches.called("net", (4, 3), part=part)
    batches.passed()
    batches.passed()
    batches.step_ended()
    assert batches.take() == [{"samples": 8}]


def test_what_is_taken_is_not_there_again():
    batches = Batches()
    batches.called("net", (8, 3))
    assert batches.take() == []
    batches.step_ended()
    assert batches.take() == [{}]
