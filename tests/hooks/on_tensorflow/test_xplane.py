"""The file of TensorFlow's profiler is read as what it says: a small one, made by hand."""

from typing import Any

import pytest

xplane = pytest.importorskip("tbdprof.hooks.on_tensorflow.session.xplane")
pb = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
from xspaces import Plane  # noqa: E402

from tbdprof.facts.records import AllocationKind  # noqa: E402

BEGIN_NS = 1_000_000_000
OFFSET_NS = 400  # of the wall clock before the monotonic one
MEMORY = {
    "addr": 4096, "requested_bytes": 100, "allocation_bytes": 256, "bytes_allocated": 512, "peak_bytes_in_use": 768,
    "tf_op": "conv", "region_type": "output", "data_type": 1, "shape": "[5,5]", "id": 7, "allocator_name": "bfc_cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def read() -> Any:
    space = pb.XSpace()
    environment = Plane(space, "Task Environment")
    environment.add_stats(environment.plane.stats, {"profile_start_time": BEGIN_NS})
    host = Plane(space, "/host:CPU")
    python = host.plane.lines.add(id=1, name="python")
    host.event(python, "tbdprof step", 900, 1)
    host.event(python, "EagerLocalExecute: __inference_step_3", 50, 800)
    host.event(python, "FunctionRun", 60, 5, id=7)
    host.event(python, "EagerLocalExecute: Mul", 10, 20)
    host.event(python, "EagerExecute", 9, 22, eager_op="Mul")
    worker = host.plane.lines.add(id=2, name="tf_Compute/2", timestamp_ns=100)
    host.event(worker, "ExecutorState::Process", 0, 500, id=7)
    host.event(worker, "conv:Conv2D", 20, 100, "Conv2D")
    host.event(worker, "ThreadpoolListener::Record", 5, 0)
    host.event(worker, "MemoryAllocation", 40, 0, **MEMORY)
    host.event(worker, "MemoryDeallocation", 30, 0, **{**MEMORY, "addr": -1})
    return xplane.read(space.SerializeToString(), OFFSET_NS)


def test_times_are_the_monotonic_clocks(read: Any) -> None:
    assert [mark.time_ns for mark in read.marks] == [BEGIN_NS - OFFSET_NS + 900]
    assert read.marks[0].name == "step"


def test_an_operator_is_of_the_run_the_executor_reports_around_it(read: Any) -> None:
    (op,) = [each for each in read.ops if not each.is_eager]
    assert (op.node, op.op, op.thread, op.step) == ("conv", "Conv2D", 2, 7)
    assert (op.start_ns, op.end_ns) == (BEGIN_NS - OFFSET_NS + 120, BEGIN_NS - OFFSET_NS + 220)


def test_a_function_lasts_as_long_as_the_call_that_waits_for_it(read: Any) -> None:
    (function,) = read.functions
    assert (function.name, function.step, function.end_ns - function.start_ns) == ("__inference_step_3", 7, 800)


def test_in_eager_mode_an_operator_is_its_type(read: Any) -> None:
    (op,) = [each for each in read.ops if each.is_eager]
    assert (op.node, op.op, op.step) == ("Mul", "Mul", 0)


def test_memory_is_in_the_order_of_time_and_an_address_has_no_sign(read: Any) -> None:
    freed, made = read.memory
    assert (freed.kind, freed.address) == (AllocationKind.FREED, (1 << 64) - 1)
    assert (made.kind, made.address, made.requested_bytes, made.allocated_bytes) == (
        AllocationKind.ALLOCATED,
        4096,
        100,
        256,
    )
    assert (made.total_bytes, made.node, made.shape, made.step) == (512, "conv", "[5,5]", 7)


def test_a_file_without_events_is_a_trace_without_events() -> None:
    empty = xplane.read(pb.XSpace().SerializeToString(), 0)
    assert (empty.ops, empty.memory, empty.marks, empty.dropped) == ([], [], [], 0)
