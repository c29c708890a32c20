"""How much a step is given, from the calls of models and the backward passes between them."""

import pytest

from tbdprof.facts.batches import FIRST_SIZE, ONES, Batches, Layout

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
        ([("net", (8, 3))] * 3 + [None], 8),  # triplets
        ([("net", (8, 3))] * 4 + [None], None),  # new samples or the same ones
        ([("net", (8, 3))] * 4 + [None, ("maker", (8,)), None], 8),
        ([("policy", (1, 3))] * 5 + [None], 5),  # an episode
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


def stepped(*calls: tuple[tuple[int, ...], bool]) -> Batches:
    batches = Batches()
    for shape, continues in calls:
        batches.called("cell", shape, continues=continues)
    batches.passed()
    batches.step_ended()
    return batches


def test_a_network_that_is_called_for_each_time_step_has_the_samples_of_its_last_call():
    for samples in (1, 8):
        assert stepped(((samples, 3), False), *[((samples, 3), True)] * 5).take() == [{"samples": samples}]


def test_what_the_samples_are_is_said_and_why_they_are_not_known():
    assert stepped(((8, 3), False)).source == FIRST_SIZE
    assert stepped(*[((1, 3), False)] * 5).source == ONES
    assert "in the last of its 2 calls" in stepped(*[((8, 3), False)] * 2).source
    several = stepped(*[((8, 3), False)] * 9)
    assert several.source == ""
    assert "called 9 times" in several.unknown


@pytest.mark.parametrize(
    ("shape", "layout", "samples"),
    [
        ((35, 20), Layout("LSTM", 35, 20), 20),  # (time, batch)
        ((35,), Layout("LSTM", 35, 1), 1),  # one sequence
        ((20, 35), Layout("LSTM", 35, 20), 20),  # turned before the layer
        ((4,), Layout("Linear", 4, 1, 1), 1),
        ((4, 2), Layout("Linear", 4, 1, 1), 4),  # a layer of something else
        ((8, 3), Layout("LSTM", 5, 6), 8),
    ],
)
def test_a_layer_says_where_the_batch_lies(shape: tuple[int, ...], layout: Layout, samples: int):
    batches = Batches()
    batches.called("net", shape, layout=layout)
    batches.step_ended()
    assert (batches.source != FIRST_SIZE) == layout.holds_for(shape)
    assert batches.take() == [{"samples": samples}]


def test_a_closure_computes_the_same_loss_again():
    batches = Batches()
    batches.called("net", (8, 3))
    batches.passed()  # a micro-batch before the step
    batches.update_begins()
    for _ in range(3):
        batches.called("net", (8, 3))
        batches.passed()
    batches.update_ends()
    batches.step_ended()
    assert batches.take() == [{"samples": 16}]
