import itertools

import numpy as np
import pytest

from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import AllocationKind, Operation, Phase, Role, SpanKind, Strings
from tbdprof.facts.rows import Table
from tbdprof.hooks.on_torch.memory.table import build
from tbdprof.hooks.on_torch.session.backward_runs import relate
from tbdprof.hooks.on_torch.session.events import (
    Enter,
    Event,
    Existing,
    Leave,
    Mark,
    Marked,
    MemoryEvent,
    Point,
    Region,
    Scope,
    SeenTensor,
    Trace,
)

MAIN = 1


def region(name: str, scope: Scope = Scope.FUNCTION, number: int = -1, parent: Region | None = None) -> Region:
    return Region(name, scope, MAIN, 0, 0, number, parent)


def engine_node(name: str, parent: Region | None = None) -> Region:
    return region(f"autograd::engine::evaluate_function: {name}", parent=parent)


def trace(*events: Event, cpu_bytes_at_begin: int = 0) -> Trace:
    relate([event.region for event in events if isinstance(event, Enter)])
    return Trace(list(zip(itertools.count(), events)), True, cpu_bytes_at_begin)


def memory(address: int, size: int, total: int) -> MemoryEvent:
    return MemoryEvent("cpu", MAIN, address, size, total, was_tensor=True)


def mark(point: Point, **more: object) -> Marked:
    return Marked(MAIN, Mark(point, **more))  # type: ignore[arg-type]


def spans_of(events: Trace) -> list[tuple[str, SpanKind, Phase, str]]:
    """Each span's name, kind, phase and its parent's name, in order of opening."""
    strings = Strings()
    rows = build(events, [], True, strings)[0]["span"]
    names = {int(row["id"]): strings[row["name"]] for row in rows} | {-1: ""}
    return [
        (
            names[int(row["id"])],
            SpanKind(row["kind"]),
            Phase(row["phase"]),
            names[int(row["parent"])],
        )
        for row in rows
    ]


def changes(rows: Table) -> list[tuple[AllocationKind, int, int, int]]:
    return [
        (
            AllocationKind(row["kind"]),
            int(row["address"]),
            int(row["allocated_bytes"]),
            int(row["total_bytes"]),
        )
        for row in rows
    ]


def test_a_forward_phase_outlasts_the_range_it_began_in_and_is_cut_there() -> None:
    scope = region("my forward", Scope.USER)
    loss = region("aten::mse_loss", number=3)
    found = spans_of(
        trace(
            Enter(scope),
            mark(Point.FORWARD, name="forward"),
            Leave(scope),
            Enter(loss),
            Leave(loss),
            mark(Point.STEP),
        )
    )
    assert found == [
        ("my forward", SpanKind.PHASE, Phase.OUTSIDE, ""),
        ("forward", SpanKind.PHASE, Phase.FORWARD, "my forward"),
        ("forward", SpanKind.PHASE, Phase.FORWARD, ""),
        ("aten::mse_loss", SpanKind.OPERATOR, Phase.FORWARD, "forward"),
    ]


def test_a_range_open_where_the_forward_phase_ends_goes_on_outside_it() -> None:
    scope = region("my backward", Scope.USER)
    node = engine_node("MulBackward0", scope)
    leaf = region("torch::autograd::AccumulateGrad", Scope.BACKWARD, parent=node)
    found = spans_of(
        trace(
            mark(Point.FORWARD, name="forward"),
            Enter(scope),
            Enter(node),
            Enter(leaf),
            Leave(leaf),
            Leave(node),
            Leave(scope),
        )
    )
    assert [row[0] for row in found] == [
        "forward",
        "my backward",
        "my backward",
        "backward",
        node.name,
        leaf.name,
    ]
    assert found[1][2:] == (Phase.FORWARD, "forward")
    assert found[2][2:] == (Phase.OUTSIDE, "")
    assert found[3][2:] == (Phase.BACKWARD, "my backward")


def test_without_gradients_the_forward_phase_ends_with_the_call() -> None:
    after = region("aten::argmax")
    found = spans_of(
        trace(
            mark(Point.FORWARD, name="forward"),
            mark(Point.FORWARD_END, ends_forward=True),
            Enter(after),
            Leave(after),
        )
    )
    assert found[1] == ("aten::argmax", SpanKind.OPERATOR, Phase.OUTSIDE, "")


def test_a_container_of_backward_nodes_is_no_operator() -> None:
    node = engine_node("CheckpointFunctionBackward")
    container = region("CheckpointFunctionBackward", Scope.BACKWARD, 4, node)
    again = region("aten::relu", number=9, parent=container)
    inner = engine_node("ReluBackward0", container)
    derivative = region("aten::mul", parent=container)
    derivative.shapes = [[2]]
    found = spans_of(
        trace(
            Enter(node),
            Enter(container),
            Enter(again),
            Leave(again),
            Enter(inner),
            Leave(inner),
            Enter(derivative),
            Leave(derivative),
            Leave(container),
            Leave(node),
        )
    )
    kinds = {name: (kind, phase) for name, kind, phase, _ in found}
    assert kinds["CheckpointFunctionBackward"] == (SpanKind.PHASE, Phase.BACKWARD)
    assert kinds["aten::relu"] == (SpanKind.OPERATOR, Phase.RECOMPUTE)


def test_a_late_account_starts_from_the_known_blocks_and_drops_stale_frees() -> None:
    events = trace(memory(1, 10, 1010), memory(7, -500, 510), memory(1, -10, 500), cpu_bytes_at_begin=1000)
    rows = build(events, [Existing("cpu", 3, 64, (16,))], False, Strings())[0]["allocation"]
    assert changes(rows) == [
        (AllocationKind.EXISTING, 3, 64, -1),
        (AllocationKind.ALLOCATED, 1, 10, 74),
        (AllocationKind.FREED, 1, 10, 64),
    ]


def test_a_late_account_that_frees_a_block_with_the_size_of_an_older_one_still_adds_up() -> None:
    events = trace(memory(3, -500, 500), memory(1, 10, 510), cpu_bytes_at_begin=1000)
    existing = [Existing("cpu", 3, 64, (16,)), Existing("cpu", 4, 32, (8,))]
    tables, _, missing = build(events, existing, False, Strings())
    assert changes(tables["allocation"])[2:] == [
        (AllocationKind.FREED, 3, 64, 32),
        (AllocationKind.ALLOCATED, 1, 10, 42),
    ]
    assert missing == {}
    assert "another size" in missing_of(events, existing=tuple(existing))["allocations"]


def test_a_full_account_reports_the_free_of_a_block_nobody_saw() -> None:
    events = trace(memory(7, -500, -100), cpu_bytes_at_begin=400)
    rows = build(events, [], True, Strings())[0]["allocation"]
    assert changes(rows) == [(AllocationKind.FREED, 7, 500, -100)]


def test_a_block_nobody_saw_was_there_from_the_start_if_torchs_total_has_room_for_it() -> None:
    """A thread amid an operator may hold what Python cannot see."""
    events = trace(memory(7, -500, 500), cpu_bytes_at_begin=1000)
    rows = build(events, [], True, Strings())[0]["allocation"]
    assert changes(rows) == [(AllocationKind.EXISTING, 7, 500, -1), (AllocationKind.FREED, 7, 500, 500)]


@pytest.mark.parametrize(("counted", "base"), [(True, 100), (False, 0), (False, 30)])
def test_what_a_thread_made_before_it_joined_is_there_from_when_torch_counted_it(counted: bool, base: int) -> None:
    """An account that began late lacks the 100 bytes of an older block, and has 30 of what was freed before it."""
    events = trace(
        memory(2, 8, base + 8),
        memory(3, 4, base + 8 + 960 + 4),  # only the total shows the 960 bytes
        memory(5, -960, base + 8 + 4),
        memory(6, -64, base + 8 + 4 - 64) if not counted else memory(6, 1, base + 13),  # older: no total shows it
        cpu_bytes_at_begin=base,
    )
    rows = build(events, [Existing("cpu", 1, 100, (25,))], counted, Strings())[0]["allocation"]
    found = changes(rows)[1:]
    assert found[:4] == [
        (AllocationKind.ALLOCATED, 2, 8, 108),
        (AllocationKind.ALLOCATED, 5, 960, 1068),
        (AllocationKind.ALLOCATED, 3, 4, 1072),
        (AllocationKind.FREED, 5, 960, 112),
    ]
    assert found[4:] == ([(AllocationKind.ALLOCATED, 6, 1, 113)] if counted else [])


def test_a_block_that_died_uncounted_is_freed_before_its_address_is_used_again() -> None:
    events = trace(memory(3, 8, 8))
    rows = build(events, [Existing("cpu", 3, 64, (16,))], False, Strings())[0]["allocation"]
    assert changes(rows)[1:] == [
        (AllocationKind.FREED, 3, 64, 0),
        (AllocationKind.ALLOCATED, 3, 8, 8),
    ]


def test_a_death_that_torch_also_counts_is_reported_once() -> None:
    gone = mark(Point.GONE, device="cpu", address=3)
    events = trace(gone, memory(3, -64, 0), cpu_bytes_at_begin=64)
    rows = build(events, [Existing("cpu", 3, 64, (16,))], False, Strings())[0]["allocation"]
    assert changes(rows)[1:] == [(AllocationKind.FREED, 3, 64, 0)]


def missing_of(
    events: Trace, *, counted_from_start: bool = True, existing: tuple[Existing, ...] = ()
) -> dict[str, str]:
    return build(events, existing, counted_from_start, Strings())[2]


def test_events_that_agree_leave_nothing_to_report() -> None:
    assert missing_of(trace(memory(1, 10, 10), memory(1, -10, 0), memory(1, 8, 8))) == {}


def test_a_free_of_another_size_than_was_allocated_is_reported() -> None:
    missing = missing_of(trace(memory(1, 10, 10), memory(1, -6, 4)))
    assert missing == {"allocations": "1 frees reported another size than was allocated"}


def test_an_allocation_at_an_address_still_in_use_is_reported() -> None:
    missing = missing_of(trace(memory(1, 10, 10), memory(1, 10, 20), memory(1, 10, 30)))
    assert missing == {"allocations": "2 allocations at addresses still in use"}


def test_an_older_block_that_died_uncounted_is_no_contradiction() -> None:
    older = (Existing("cpu", 3, 64, (16,)),)
    again = (memory(3, 8, 8), memory(3, 8, 16))
    assert missing_of(trace(again[0]), counted_from_start=False, existing=older) == {}
    assert "1 allocations at" in missing_of(trace(*again), counted_from_start=False, existing=older)["allocations"]
    assert "1 allocations at" in missing_of(trace(again[0]), existing=older)["allocations"]


def test_shared_mappings_carry_no_total_and_are_left_out_with_their_frees() -> None:
    """The first free is of a mapping older than the window; the last one ends torch's only block."""
    shared = (memory(90, -500, 0), memory(91, 300, 0), memory(92, 200, 0), memory(91, -300, 0))
    events = trace(*shared, memory(1, 10, 10), memory(92, -200, 0), memory(1, -10, 0))
    tables, _, missing = build(events, [], True, Strings())
    assert changes(tables["allocation"]) == [
        (AllocationKind.ALLOCATED, 1, 10, 10),
        (AllocationKind.FREED, 1, 10, 0),
    ]
    assert missing == {
        "shared_memory": "up to 500 bytes at once were shared with other processes, outside of data loaders: "
        "not counted, and what they hold is not known"
    }


def test_what_a_loader_receives_of_its_workers_is_input_as_long_as_it_is_there() -> None:
    first, second = (region("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", Scope.USER) for _ in "12")
    received = [Enter(first), memory(90, 300, 0), memory(91, 20, 0), Leave(first)]
    again = [Enter(second), memory(92, 300, 0), Leave(second), memory(90, -300, 0), Enter(second), Leave(second)]
    tables, _, missing = build(trace(*received, *again), [], True, Strings())
    owners = tables["owner"]
    assert [owners["address"][owners["sequence"] == each].tolist() for each in np.unique(owners["sequence"])] == [
        [90, 91],
        [90, 91, 92],
        [91, 92],
    ]
    assert set(owners["role"].tolist()) == {Role.INPUT}
    assert (len(tables["allocation"]), missing) == (0, {})


def test_a_free_that_leaves_nothing_is_torchs_own() -> None:
    rows = build(trace(memory(7, -500, 0), cpu_bytes_at_begin=500), [], True, Strings())[0]["allocation"]
    assert changes(rows) == [(AllocationKind.EXISTING, 7, 500, -1), (AllocationKind.FREED, 7, 500, 0)]


def test_what_a_loader_does_is_data_even_within_a_forward_phase() -> None:
    loading = region("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", Scope.USER)
    stacked = region("aten::stack", parent=loading)
    found = spans_of(
        trace(mark(Point.FORWARD, name="forward"), Enter(loading), Enter(stacked), Leave(stacked), Leave(loading))
    )
    assert found == [
        ("forward", SpanKind.PHASE, Phase.FORWARD, ""),
        (loading.name, SpanKind.PHASE, Phase.DATA, "forward"),
        ("aten::stack", SpanKind.OPERATOR, Phase.DATA, loading.name),
    ]


def sent(address: int, size: int) -> Region:
    found = region("c10d::allreduce_")
    found.tensors = [SeenTensor("cpu", address, size, (size // 4,))]
    return found


def test_a_free_by_a_sending_thread_is_found_by_torchs_total() -> None:
    bucket = sent(8, 400)
    events = (memory(8, 400, 500), memory(16, 40, 540), Enter(bucket), Leave(bucket), memory(24, 4, 144))
    tables, _, missing = build(trace(*events, cpu_bytes_at_begin=100), [Existing("cpu", 32, 100)], True, Strings())
    assert changes(tables["allocation"])[-2:] == [
        (AllocationKind.FREED, 8, 400, 140),
        (AllocationKind.ALLOCATED, 24, 4, 144),
    ]
    assert missing[RemarkOn.SENT_MEMORY].startswith("1 frees")


@pytest.mark.parametrize(
    ("shown", "last"),
    [
        (memory(8, -400, 140), (AllocationKind.FREED, 8, 400, 140)),
        (memory(16, 400, 940), (AllocationKind.ALLOCATED, 16, 400, 940)),
    ],
)
def test_of_two_sent_blocks_of_one_size_the_one_was_freed_that_later_events_allow(
    shown: Event, last: tuple[AllocationKind, int, int, int]
) -> None:
    """Block 16 is freed unseen, which shows at 24. Then 8 is freed, so it was not the one; or 16 is allocated again."""
    marks = [each for block in (sent(8, 400), sent(16, 400)) for each in (Enter(block), Leave(block))]
    events = (memory(8, 400, 500), memory(16, 400, 900), *marks, memory(24, 40, 540), shown)
    tables, _, missing = build(trace(*events, cpu_bytes_at_begin=100), [Existing("cpu", 32, 100)], True, Strings())
    assert changes(tables["allocation"])[-3:] == [
        (AllocationKind.FREED, 16, 400, 500),
        (AllocationKind.ALLOCATED, 24, 40, 540),
        last,
    ]
    assert set(missing) == {RemarkOn.SENT_MEMORY}


def test_a_block_that_was_sent_after_a_free_is_not_the_one_that_was_freed() -> None:
    """Block 8 is freed unseen, which shows at 24, and block 40 later, which shows at 48. Then 40 is allocated again."""
    marks = {key: [Enter(block := sent(key, 400)), Leave(block)] for key in (8, 16, 40)}
    events = (
        *(memory(8, 400, 400), memory(16, 400, 800), *marks[8], *marks[16], memory(24, 4, 404)),
        *(memory(40, 400, 804), *marks[40], memory(48, 4, 408), memory(40, 400, 808)),
    )
    rows = build(trace(*events), [], True, Strings())[0]["allocation"]
    assert [address for kind, address, *_ in changes(rows) if kind == AllocationKind.FREED] == [8, 40]


def test_a_block_that_was_not_sent_is_not_thought_free() -> None:
    events = memory(8, 400, 400), memory(24, 4, 4)
    tables, _, missing = build(trace(*events), [], True, Strings())
    assert [kind for kind, *_ in changes(tables["allocation"])] == [AllocationKind.ALLOCATED] * 2
    assert RemarkOn.SENT_MEMORY not in missing


def test_a_buffer_that_python_does_not_see_was_there_if_torchs_total_has_room_for_it() -> None:
    for there, kinds in ((400, [AllocationKind.EXISTING]), (399, [])):
        bucket = sent(8, 400)
        tables, _, _ = build(trace(Enter(bucket), Leave(bucket), cpu_bytes_at_begin=there), [], True, Strings())
        assert [kind for kind, *_ in changes(tables["allocation"])] == kinds
        assert list(tables["owner"]["role"]) == [Role.COMMUNICATION]


def test_communication_is_an_operator_though_a_range_in_torch() -> None:
    sent = region("gloo:all_reduce", Scope.USER)
    assert [kind for _, kind, _, _ in spans_of(trace(Enter(sent), Leave(sent)))] == [SpanKind.OPERATOR]


def test_an_operators_work_stands_on_its_span() -> None:
    strings, product = Strings(), region("aten::mm")
    product.operation, product.work = Operation.MATMUL, "a work"
    rows = build(trace(Enter(product), Leave(product)), [], True, strings)[0]["span"]
    assert [(row["operation"], strings[row["work"]]) for row in rows] == [(Operation.MATMUL, "a work")]
