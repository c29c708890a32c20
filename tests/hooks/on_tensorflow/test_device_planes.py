"""What TensorFlow's profiler reports of a GPU becomes kernels in the operators that asked for them."""

from typing import Any

import pytest

pb = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
xplane = pytest.importorskip("tbdprof.hooks.on_tensorflow.session.xplane")
from xspaces import Plane  # noqa: E402

from tbdprof.facts import counters  # noqa: E402
from tbdprof.facts.records import KernelKind, Operation, Phase, Strings  # noqa: E402
from tbdprof.hooks.on_tensorflow.kernels import gpu_activity  # noqa: E402
from tbdprof.hooks.on_tensorflow.kernels.spans import Ran, spans  # noqa: E402
from tbdprof.hooks.on_tensorflow.memory import table  # noqa: E402
from tbdprof.hooks.on_tensorflow.operators.graphs import Node  # noqa: E402
from tbdprof.hooks.on_tensorflow.session import gpu_planes  # noqa: E402
from tbdprof.hooks.on_tensorflow.session.events import Trace  # noqa: E402

BEGIN_NS, OFFSET_NS = 9_000_000, 400  # the wall clock at the session's beginning, and before the monotonic one
ZERO_NS = BEGIN_NS - OFFSET_NS
KERNEL = "regs:40 static_shared:1024 dynamic_shared:512 grid:8,2,1 block:128,1,1 occ_pct:50"
COPY = "kind_src:pinned kind_dst:device size:4096 dest:0 async:1"
SET = "kind:device num_bytes:256 async:1"


class Story:
    """A step on one GPU: a convolution and its gradient, on the lines of two threads and two streams."""

    def __init__(self) -> None:
        self.space = pb.XSpace()
        environment = Plane(self.space, "Task Environment")
        environment.add_stats(environment.plane.stats, {"profile_start_time": BEGIN_NS})
        self.host, self.gpu = Plane(self.space, "/host:CPU"), Plane(self.space, "/device:GPU:0")
        self.threads = {number: self.host.plane.lines.add(id=number, name=f"tf_{number}") for number in (2, 3)}
        self.streams = {
            number: self.gpu.plane.lines.add(id=number, name=f"Stream #{number}(Kernel)") for number in (13, 14)
        }
        self.host.event(self.threads[2], "conv:Conv2D", 100, 100, "Conv2D")
        self.host.event(self.threads[3], "grad/conv:Conv2DBackpropFilter", 300, 100, "Conv2DBackpropFilter")

    def call(self, thread: int, name: str, start_ns: int, correlation: int) -> None:
        self.host.event(self.threads[thread], name, start_ns, 5, correlation_id=correlation, device_id=0)

    def did(self, stream: int, name: str, start_ns: int, correlation: int, length_ns: int = 50, **stats: Any) -> None:
        every_stat = {"correlation_id": correlation, "context_id": "$$1", **stats}
        self.gpu.event(self.streams[stream], name, start_ns, length_ns, **every_stat)

    def read(self) -> Trace:
        return xplane.read(self.space.SerializeToString(), OFFSET_NS)  # type: ignore[no-any-return]


def whole() -> Story:
    story = Story()
    story.call(2, "cuLaunchKernel", 120, 5)
    story.did(13, "void conv<float>(float*)", 400, 5, kernel_details=KERNEL, tf_op="conv:Conv2D")
    story.call(3, "cuMemcpyHtoDAsync_v2", 310, 6)
    story.did(14, "MemcpyH2D", 320, 6, memcpy_details=COPY)
    story.call(3, "cuMemsetD32Async", 330, 7)
    story.did(14, "Memset", 340, 7, memset_details=SET)
    return story


def built(trace: Trace) -> tuple[gpu_activity.Device, Strings]:
    """Return the tables where the spans are the operators of the trace, each without a layer: row by row."""
    strings, node = Strings(), Node(Phase.FORWARD, None, Operation.CONVOLUTION)
    rows = spans([Ran(op.op, op.thread, op.start_ns, op.end_ns, node) for op in trace.ops], strings)
    return gpu_activity.build(trace, rows, strings), strings


def samples(found: gpu_activity.Device, strings: Strings) -> dict[str, float]:
    return {strings[int(row["counter"])]: float(row["value"]) for row in found.tables["sample"]}


def test_a_step_becomes_a_kernel_a_copy_and_a_set() -> None:
    found, strings = built(whole().read())

    rows = found.tables["kernel"]
    assert rows["kind"].tolist() == [KernelKind.COPY, KernelKind.SET, KernelKind.KERNEL]  # in order of their start
    assert [strings[int(name)] for name in rows["name"]] == ["MemcpyH2D", "Memset", "void conv<float>(float*)"]
    assert {strings[int(name)] for name in rows["device"]} == {"cuda:0"}
    assert rows["stream"].tolist() == [14, 14, 13]
    assert (rows["launch_ns"] - ZERO_NS).tolist() == [310, 330, 120]
    assert (rows["start_ns"] - ZERO_NS).tolist() == [320, 340, 400]
    assert (rows["end_ns"] - ZERO_NS).tolist() == [370, 390, 450]
    assert rows["thread"].tolist() == [3, 3, 2]
    assert rows["span"].tolist() == [1, 1, 0]
    assert rows["moved_bytes"].tolist() == [4096, 256, -1]
    assert rows["registers"].tolist() == [-1, -1, 40]
    assert rows["shared_bytes"].tolist() == [-1, -1, 1536]
    assert (strings[int(rows["grid"][2])], strings[int(rows["block"][2])]) == ("[8, 2, 1]", "[128, 1, 1]")
    assert rows["grid"].tolist()[:2] == [-1, -1]
    assert samples(found, strings) == {counters.CLOCK_RESIDUAL: 0, counters.LOST: 0}
    assert found.missing == {}


def test_calls_may_be_on_a_plane_of_their_own() -> None:
    story = whole()
    story.host.plane.name = "/host:CUPTI"
    found, _ = built(story.read())
    assert (found.tables["kernel"]["launch_ns"] - ZERO_NS).tolist() == [310, 330, 120]


def test_without_its_call_a_kernel_is_placed_by_the_nodes_name() -> None:
    story = Story()
    story.did(13, "k", 400, 5, kernel_details=KERNEL, tf_op="grad/conv:Conv2DBackpropFilter")
    story.did(13, "k", 460, 6, kernel_details=KERNEL, tf_op="nobody/knows:It")
    story.did(13, "k", 520, 7, kernel_details=KERNEL)
    found, _ = built(story.read())

    rows = found.tables["kernel"]
    assert rows["span"].tolist() == [1, -1, -1]
    assert rows["launch_ns"].tolist() == [-1] * 3
    assert found.missing["launches of kernels"].startswith("3 of 3")


def test_a_call_outside_all_operators_is_placed_by_the_nodes_name() -> None:
    story = Story()
    story.call(2, "cuLaunchKernel", 250, 5)  # the convolution's thread has nothing open then
    story.did(13, "k", 400, 5, kernel_details=KERNEL, tf_op="conv:Conv2D")
    found, _ = built(story.read())
    assert found.tables["kernel"]["span"].tolist() == [0]


def test_a_kernel_is_in_the_innermost_operator() -> None:
    story = Story()
    story.host.event(story.threads[2], "inner:Mul", 110, 40, "Mul")
    story.call(2, "cuLaunchKernel", 120, 5)
    story.did(13, "k", 400, 5, kernel_details=KERNEL)
    story.call(2, "cuLaunchKernel", 160, 6)  # the inner one has ended
    story.did(13, "k", 460, 6, kernel_details=KERNEL)
    found, _ = built(story.read())
    assert found.tables["kernel"]["span"].tolist() == [1, 0]


def test_kernels_of_a_graph_share_its_launch() -> None:
    story = Story()
    story.call(2, "cuGraphLaunch (CudaGraph:9)", 120, 5)
    for start_ns in (400, 460):
        story.did(13, "k", start_ns, 5, kernel_details=KERNEL, cuda_graph_id=9)
    found, _ = built(story.read())
    assert found.tables["kernel"]["graph"].tolist() == [9, 9]
    assert found.tables["kernel"]["span"].tolist() == [0, 0]


def test_what_is_no_work_of_the_device_is_left_out() -> None:
    story = whole()
    story.did(13, "MemoryAlloc", 700, 8, memalloc_details="kind:device num_bytes:64")
    story.gpu.event(story.gpu.plane.lines.add(id=99, name="Steps"), "1", 0, 900)
    found, _ = built(story.read())
    assert len(found.tables["kernel"]) == 3


def test_an_error_of_the_profiler_is_no_lost_event() -> None:
    story = whole()
    story.space.errors.append("CUPTI is busy")

    trace = story.read()

    assert (trace.dropped, trace.errors) == (0, ["CUPTI is busy"])


def test_lost_records_are_counted_and_reported() -> None:
    story = whole()
    story.call(2, "cuLaunchKernel", 130, 50)  # known by the call's name
    story.call(2, "void conv<float>(float*)", 140, 51)  # known by the kernel's
    story.call(2, "cuStreamSynchronize", 150, 52)  # launches nothing
    story.space.warnings.append(
        "Detected GPU events dropped on here: Profiler has collected 9 driver events and 3 device events. "
        "4 events dropped because total device(activity) events reaches max."
    )
    trace = story.read()
    found, strings = built(trace)
    assert trace.dropped == 4
    assert samples(found, strings)[counters.LOST] == 6
    assert found.missing["kernels lost"] == (
        "6 of 9 records of kernels, copies and memsets were lost: launches without their kernel (2), "
        "dropped by the profiler (4)"
    )


def test_a_kernel_before_its_launch_shows_that_the_clocks_disagree() -> None:
    """Planted: the device's clock is 1 ms slow."""
    story = whole()
    story.streams[13].timestamp_ns = -1_000_000
    found, strings = built(story.read())
    assert samples(found, strings)[counters.CLOCK_RESIDUAL] == 1_000_000 - 400 + 120
    assert found.missing["clock of kernels"] == "the device's times may be off by 1000 µs"


def test_a_wrong_correlation_puts_a_kernel_elsewhere() -> None:
    """Planted: the judge of the first test can say no."""
    story = Story()
    story.call(2, "cuLaunchKernel", 120, 5)
    story.call(3, "cuLaunchKernel", 310, 6)
    story.did(13, "k", 400, 6, kernel_details=KERNEL)
    found, _ = built(story.read())
    assert found.tables["kernel"]["span"].tolist() == [1]


def test_instructions_of_xla_are_reported_where_they_were_asked_for() -> None:
    story = Story()
    story.call(2, "cuLaunchKernel", 120, 5)
    story.did(13, "k", 400, 5, kernel_details=KERNEL, hlo_op="dot.3", hlo_module="a_inference_step_3__1")
    (event,) = gpu_activity.instructions(story.read())
    assert (event.thread, event.name, event.module) == (2, "dot.3", "a_inference_step_3__1")
    assert (event.start_ns - ZERO_NS, event.end_ns - ZERO_NS) == (120, 125)


def test_where_xla_launched_it_is_said_that_it_does_so_otherwise_without_a_profiler() -> None:
    story = Story()
    story.call(2, "cuLaunchKernel", 120, 5)
    story.did(13, "k", 400, 5, kernel_details=KERNEL, hlo_op="dot.3", hlo_module="a_inference_step_3__1")
    assert "one by one" in built(story.read())[0].missing["graphs of kernels"]
    assert "graphs of kernels" not in built(whole().read())[0].missing


def test_a_call_that_names_an_instruction_of_xla_is_not_another_one() -> None:
    story = Story()
    stats: dict[str, Any] = {"correlation_id": 5, "hlo_op": "dot.3", "hlo_module": "a_inference_step_3__1"}
    story.host.event(story.threads[2], "cuLaunchKernel", 120, 5, **stats)
    story.did(13, "k", 400, 5, kernel_details=KERNEL, hlo_op="dot.3", hlo_module="a_inference_step_3__1")
    trace = story.read()

    assert trace.hlo_ops == []
    assert [event.name for event in gpu_activity.instructions(trace)] == ["dot.3"]


def test_without_a_gpu_there_is_nothing() -> None:
    story = Story()
    del story.space.planes[-1]
    found, _ = built(story.read())
    assert found == gpu_activity.Device()


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        (
            ["CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: could not enable callbacks\nand more"],
            "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: could not enable callbacks",
        ),
        ([], "it did not find CUPTI, was not let use it, or nothing ran there"),
    ],
)
def test_a_gpu_that_is_not_reported_has_its_reason(
    monkeypatch: pytest.MonkeyPatch, errors: list[str], reason: str
) -> None:
    monkeypatch.setattr(gpu_activity.tf.config, "get_visible_devices", lambda kind: ["one"])
    story = Story()
    del story.space.planes[-1]
    story.space.errors.extend(errors)
    found, _ = built(story.read())
    assert found == gpu_activity.Device({}, {"kernels": f"TensorFlow's profiler reported no GPU: {reason}"})


def test_only_numbers_of_devices_are_read() -> None:
    story = whole()
    story.gpu.plane.name = "/device:GPU:all"
    assert gpu_planes.activities({plane.name: plane for plane in story.space.planes}, 0) == []


@pytest.mark.parametrize(
    ("allocator", "place"), [("GPU_0_bfc", "cuda:0"), ("GPU_3_bfc", "cuda:3"), ("bfc_cpu_allocator_for_gpu", "cpu")]
)
def test_a_block_is_on_the_device_of_its_allocator(allocator: str, place: str) -> None:
    assert table.device_of(allocator) == place
