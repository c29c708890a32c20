"""What a GPU did in a step, from events as torch's profiler reports them, worked out by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from plain_rows import table

from tbdprof.analysis.kernels.executions import gather
from tbdprof.facts import counters
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import KernelKind, Phase, Run, Strings
from tbdprof.facts.rows import Table
from tbdprof.hooks.on_torch.kernels import gpu_activity
from tbdprof.hooks.on_torch.kernels.table import build
from tbdprof.hooks.on_torch.session.backward_runs import relate
from tbdprof.hooks.on_torch.session.events import (
    Enter,
    Event,
    Leave,
    Mark,
    Marked,
    Point,
    Region,
    Scope,
    Trace,
)

WALL = 10**9  # what the wall clock is ahead of the recording's
MAIN, AUTOGRAD, LOADER = 1, 2, 3
SYSTEM_THREADS = {MAIN: 100, AUTOGRAD: 200, LOADER: 300}
OF_KERNEL = (
    '"queued": 0, "device": 0, "registers per thread": 32, "shared memory": 1024, "blocks per SM": inf, '
    '"grid": [4, 2, 1], "block": [128, 1, 1], "est. achieved occupancy %": 0, "graph id": {graph}, "graph node id": 0'
)


@dataclass(frozen=True)
class FakeEvent:
    """An event with the methods of torch's."""

    kind: str
    named: str
    number: int
    operator: int
    place: int  # stream or system's thread
    begin: int
    end: int
    thread: int = MAIN
    details: str = ""

    def name(self) -> str:
        return self.named

    def activity_type(self) -> str:
        return self.kind

    def device_index(self) -> int:
        return 0

    def device_resource_id(self) -> int:
        return self.place

    def start_ns(self) -> int:
        return self.begin + WALL

    def end_ns(self) -> int:
        return self.end + WALL

    def correlation_id(self) -> int:
        return self.number

    def linked_correlation_id(self) -> int:
        return self.operator

    def start_thread_id(self) -> int:
        return self.thread

    def metadata_json(self) -> str:
        return self.details


@dataclass
class Story:
    """A window, as operators and marks on one hand and as events of the profiler on the other."""

    marks: list[tuple[int, Event]] = field(default_factory=list)
    events: list[FakeEvent] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)

    def mark(self, time: int, point: Point, name: str = "") -> None:
        self.marks.append((time, Marked(MAIN, Mark(point, name))))

    def operator(
        self,
        correlation: int,
        name: str,
        begin: int,
        end: int,
        *,
        thread: int = MAIN,
        scope: Scope = Scope.FUNCTION,
        number: int = -1,
        parent: Region | None = None,
    ) -> Region:
        region = Region(name, scope, thread, begin, end, number, parent, correlation)
        kind = "user_annotation" if scope is Scope.USER else "cpu_op"
        self.events.append(FakeEvent(kind, name, correlation, 0, SYSTEM_THREADS[thread], begin, end, thread))
        self.marks += [(begin, Enter(region)), (end, Leave(region))]
        self.regions.append(region)
        return region

    def call(self, number: int, name: str, begin: int, end: int, *, operator: int = 0, thread: int = MAIN) -> None:
        # Without an operator torch reports the thread of whoever ends the session.
        reported = thread if operator else MAIN
        self.events.append(
            FakeEvent("cuda_runtime", name, number, operator, SYSTEM_THREADS[thread], begin, end, reported)
        )

    def kernel(self, number: int, name: str, begin: int, end: int, *, operator: int = 0, **more: Any) -> None:
        stream, graph = more.get("stream", 7), more.get("graph", 0)
        details = OF_KERNEL.replace("{graph}", str(graph))
        self.events.append(FakeEvent("kernel", name, number, operator, stream, begin, end, details=details))

    def copy(self, number: int, begin: int, end: int, size: int, *, operator: int = 0) -> None:
        details = f'"device": 0, "stream": 7, "bytes": {size}, "memory bandwidth (GB/s)": 29.2'
        name = "Memcpy HtoD (Pinned -> Device)"
        self.events.append(FakeEvent("gpu_memcpy", name, number, operator, 7, begin, end, details=details))

    def trace(self) -> Trace:
        relate(sorted(self.regions, key=lambda region: region.start_ns))
        return Trace(sorted(self.marks, key=lambda mark: mark[0]), True, 0)

    def activity(self) -> gpu_activity.Activity:
        return gpu_activity.read(self.events, "cuda:0", WALL)


@dataclass
class Found:
    tables: dict[str, Table]
    missing: dict[str, str]
    strings: Strings

    def kernels(self) -> dict[str, Any]:
        """The rows by the kernel's name."""
        return {self.strings[row["name"]]: row for row in self.tables["kernel"]}

    def samples(self, counter: str) -> list[tuple[float, int, int]]:
        """A counter's values, each with the time it is of."""
        rows = self.tables["sample"]
        mine = rows[[self.strings[index] == counter for index in rows["counter"]]]
        return [(float(row["value"]), int(row["start_ns"]), int(row["time_ns"])) for row in mine]

    def span(self, kernel: str) -> str:
        """The name of the span a kernel is reported to lie in."""
        wanted = self.kernels()[kernel]["span"]
        return next((self.strings[row["name"]] for row in self.tables["span"] if row["id"] == wanted), "none")


def a_step() -> Story:
    """A batch is copied, a layer and a loss go forward, autograd's thread back, an update, and a replayed graph."""
    story = Story()
    story.mark(1000, Point.BEGIN)
    story.operator(1, "aten::copy_", 1100, 1200)
    story.call(11, "cudaMemcpyAsync", 1110, 1150, operator=1)
    story.copy(11, 1160, 1300, 4096, operator=1)
    story.mark(1300, Point.FORWARD)
    story.mark(1310, Point.LAYER, "fc")
    story.operator(2, "aten::addmm", 1320, 1400, number=5)
    story.call(12, "cudaLaunchKernel", 1330, 1340, operator=2)
    story.kernel(12, "gemm", 1350, 1500, operator=2)
    story.mark(1410, Point.LAYER_END, "fc")
    story.operator(3, "aten::mse_loss", 1420, 1460, number=6)
    story.call(13, "cudaLaunchKernelExC", 1430, 1440, operator=3)
    story.kernel(13, "loss", 1450, 1480, operator=3, stream=8)
    node = story.operator(
        4, "autograd::engine::evaluate_function: AddmmBackward0", 1500, 1700, thread=AUTOGRAD, number=5
    )
    story.operator(5, "AddmmBackward0", 1510, 1690, thread=AUTOGRAD, scope=Scope.BACKWARD, number=5, parent=node)
    story.operator(6, "aten::mm", 1520, 1600, thread=AUTOGRAD, parent=story.regions[-1])
    story.call(14, "cudaLaunchKernel", 1530, 1540, operator=6, thread=AUTOGRAD)
    story.kernel(14, "gemm of weights", 1600, 1750, operator=6)
    update = story.operator(7, "Optimizer.step#SGD.step", 1800, 1900, scope=Scope.USER)
    story.operator(8, "aten::_foreach_add_", 1810, 1850, parent=update)
    story.call(15, "cudaLaunchKernel", 1820, 1830, operator=8)
    story.kernel(15, "add", 1840, 1880, operator=8)
    story.call(16, "cuLaunchKernel", 1860, 1870)  # from no operator
    story.kernel(16, "of triton", 1900, 1950)
    story.operator(9, "replay", 1960, 2000)
    story.call(17, "cudaGraphLaunch", 1970, 1980, operator=9)
    story.kernel(17, "first of graph", 2000, 2050, operator=9, graph=3)
    story.kernel(17, "second of graph", 2050, 2100, operator=9, graph=3)
    story.call(18, "cudaDeviceSynchronize", 2110, 2300)
    story.mark(2350, Point.STEP)
    return story


def found_in(story: Story) -> Found:
    strings = Strings()
    tables, _, missing = build(story.trace(), story.activity(), strings)
    return Found(tables, missing, strings)


def changed(story: Story, **changes: object) -> Story:
    """The story with the device's records changed."""
    device = ("kernel", "gpu_memcpy")
    story.events = [replace(each, **changes) if each.kind in device else each for each in story.events]  # type: ignore[arg-type]
    return story


def shifted(story: Story, by: int) -> Story:
    """The story with another clock of the device."""
    story.events = [
        replace(each, begin=each.begin + by, end=each.end + by) if each.kind in ("kernel", "gpu_memcpy") else each
        for each in story.events
    ]
    return story


def without(story: Story, kind: str, number: int) -> Story:
    story.events = [each for each in story.events if (each.kind, each.number) != (kind, number)]
    return story


def gathered(found: Found) -> dict[str, tuple[Phase, str, str]]:
    """Each kernel's phase, layer and operator, as the analysis finds them."""
    step = table("step", [(0, 0, 900, 1000, 1.0, -1), (1, 1, 1000, 2350, 1.0, -1)])
    window = Window(0, "kernels", "complete", {**found.tables, "step": step})
    kernels = gather(Recording(Run("toy", "torch", device="cuda:0"), [window], found.strings))
    assert kernels is not None
    columns = zip(kernels.name, kernels.phase, kernels.layer, kernels.operator, strict=True)
    return {
        kernels.strings[name]: (Phase(phase), kernels.strings[layer], kernels.strings[operator])
        for name, phase, layer, operator in columns
    }


def test_a_kernel_has_the_times_the_place_and_the_shape_of_its_launch() -> None:
    row = found_in(a_step()).kernels()["gemm"]

    assert KernelKind(row["kind"]) is KernelKind.KERNEL
    assert [int(row[name]) for name in ("stream", "launch_ns", "start_ns", "end_ns", "thread", "graph")] == [
        *(7, 1330, 1350, 1500, MAIN, -1)
    ]
    assert [int(row[name]) for name in ("registers", "shared_bytes", "moved_bytes")] == [32, 1024, -1]


def test_grid_and_block_are_texts_of_three_numbers() -> None:
    found = found_in(a_step())
    row = found.kernels()["gemm"]

    assert [found.strings[row[name]] for name in ("device", "grid", "block")] == ["cuda:0", "[4, 2, 1]", "[128, 1, 1]"]


def test_a_copy_reports_its_bytes_and_has_no_shape() -> None:
    row = found_in(a_step()).kernels()["Memcpy HtoD (Pinned -> Device)"]

    assert KernelKind(row["kind"]) is KernelKind.COPY
    assert [int(row[name]) for name in ("moved_bytes", "grid", "registers")] == [4096, -1, -1]


def test_kernels_lie_in_the_operators_that_launched_them_on_any_stream() -> None:
    found = found_in(a_step())

    assert {name: (int(row["stream"]), found.span(name)) for name, row in found.kernels().items()} == {
        "Memcpy HtoD (Pinned -> Device)": (7, "aten::copy_"),
        "gemm": (7, "aten::addmm"),
        "loss": (8, "aten::mse_loss"),
        "gemm of weights": (7, "aten::mm"),
        "add": (7, "aten::_foreach_add_"),
        "of triton": (7, "none"),
        "first of graph": (7, "replay"),
        "second of graph": (7, "replay"),
    }


def test_kernels_have_the_phase_and_layer_of_their_launch_whatever_thread_it_was_on() -> None:
    assert gathered(found_in(a_step())) == {
        "Memcpy HtoD (Pinned -> Device)": (Phase.OUTSIDE, "", "aten::copy_"),
        "gemm": (Phase.FORWARD, "fc", "aten::addmm"),
        "loss": (Phase.FORWARD, "", "aten::mse_loss"),
        "gemm of weights": (Phase.BACKWARD, "fc", "AddmmBackward0"),
        "add": (Phase.UPDATE, "", "aten::_foreach_add_"),
        "of triton": (Phase.UPDATE, "", ""),  # by thread and time, in the range of the optimizer's step
        "first of graph": (Phase.OUTSIDE, "", "replay"),
        "second of graph": (Phase.OUTSIDE, "", "replay"),
    }


def test_kernels_of_a_graph_report_its_number_and_share_its_launch() -> None:
    rows = found_in(a_step()).kernels()

    assert {(int(rows[f"{each} of graph"]["graph"]), int(rows[f"{each} of graph"]["launch_ns"])) for each in
            ("first", "second")} == {(3, 1970)}  # fmt: skip


def test_a_graph_whose_number_is_not_reported_is_a_graph() -> None:
    rows = found_in(changed(a_step(), details="")).kernels()

    assert int(rows["first of graph"]["graph"]) == 0
    assert [int(rows["gemm"][name]) for name in ("graph", "grid", "registers")] == [-1, -1, -1]


def test_the_threads_of_launches_are_reported_as_torch_numbers_them() -> None:
    rows = found_in(a_step()).kernels()

    assert {name: int(rows[name]["thread"]) for name in ("gemm", "gemm of weights", "of triton")} == {
        "gemm": MAIN,
        "gemm of weights": AUTOGRAD,
        "of triton": MAIN,
    }


def test_a_launch_on_a_thread_without_operators_has_no_thread() -> None:
    story = a_step()
    story.events = [replace(each, place=999) if each.number == 16 and each.kind == "cuda_runtime" else each for each in
                    story.events]  # fmt: skip

    assert int(found_in(story).kernels()["of triton"]["thread"]) == -1


def test_a_sound_step_loses_nothing_and_its_clocks_agree() -> None:
    found = found_in(a_step())

    assert found.missing == {}
    assert found.samples(counters.LOST) == [(0, 1000, 2350)]
    assert found.samples(counters.CLOCK_RESIDUAL) == [(0, 1000, 2350)]


def test_the_hosts_waiting_is_reported() -> None:
    story = a_step()
    story.call(19, "cudaStreamSynchronize_v3020", 2310, 2320)
    story.call(20, "cudaMemcpy", 2321, 2322)
    story.call(21, "cudaMemcpy2DAsync", 2323, 2324)
    story.call(22, "cudaEventSynchronize", 2325, 2326, thread=AUTOGRAD)

    assert found_in(story).samples(counters.SYNCHRONIZING) == [
        *((1, 2110, 2300), (1, 2310, 2320), (1, 2321, 2322), (1, 2325, 2326))
    ]


def test_waiting_of_a_thread_that_launches_nothing_is_not_the_loops() -> None:
    story = a_step()
    story.operator(30, "of a loader", 1010, 1020, thread=LOADER)
    story.call(31, "cudaEventSynchronize", 1011, 1019, operator=30, thread=LOADER)

    assert len(found_in(story).samples(counters.SYNCHRONIZING)) == 1


def test_a_launch_without_its_kernel_is_counted_and_said() -> None:
    found = found_in(without(a_step(), "kernel", 12))

    assert found.samples(counters.LOST) == [(1, 1000, 2350)]
    (reason,) = found.missing.values()
    assert reason.endswith("records of kernels, copies and memsets were lost: launches without their kernel (1)")


def test_a_kernel_without_its_launch_is_kept_reported_and_not_lost() -> None:
    found = found_in(without(a_step(), "cuda_runtime", 12))

    reason = "1 of 8 kernels, copies and memsets came without the call that launched them"
    assert found.missing == {"launches of kernels": reason}
    assert found.samples(counters.LOST) == [(0, 1000, 2350)]
    row = found.kernels()["gemm"]
    assert (int(row["launch_ns"]), int(row["thread"]), found.span("gemm")) == (-1, -1, "aten::addmm")


@pytest.mark.parametrize(("begin", "end"), [(-WALL, 1500), (1500, 1400)])
def test_records_with_impossible_times_are_left_out_and_counted(begin: int, end: int) -> None:
    story = a_step()
    story.events = [replace(each, begin=begin, end=end) if each.named == "gemm" else each for each in story.events]

    found = found_in(story)

    assert "gemm" not in found.kernels()
    assert found.samples(counters.LOST) == [(1, 1000, 2350)]
    assert "records with impossible times (1)" in found.missing["kernels lost"]


def test_what_was_launched_before_the_window_is_left_out_and_not_lost() -> None:
    story = a_step()
    story.call(40, "cudaLaunchKernel", 900, 910)
    story.kernel(40, "of before", 1005, 1010)
    story.call(41, "cudaLaunchKernel", 920, 930)
    story.kernel(42, "of nobody before", 940, 950)

    found = found_in(story)

    assert not {"of before", "of nobody before"} & set(found.kernels())
    assert found.missing == {}


def test_what_is_captured_into_a_graph_is_not_lost() -> None:
    story = a_step()
    story.call(50, "cudaStreamBeginCapture", 1900, 1901)
    story.call(51, "cudaLaunchKernel", 1902, 1903)
    story.call(52, "cudaStreamEndCapture", 1904, 1905)
    assert found_in(story).missing == {}

    story.call(53, "cudaLaunchKernel", 1906, 1907)
    assert "launches without their kernel (1)" in found_in(story).missing["kernels lost"]


def test_a_call_within_a_call_launches_no_second_kernel() -> None:
    story = a_step()
    story.events.append(replace(story.events[-1], kind="cuda_driver", named="cuLaunchKernel", number=12, begin=1333))

    found = found_in(story)

    assert found.missing == {}
    assert int(found.kernels()["gemm"]["launch_ns"]) == 1330


@pytest.mark.parametrize("answered", [90, 91])
def test_a_launch_that_is_reported_twice_under_two_numbers_is_not_lost(answered: int) -> None:
    story = a_step()
    story.call(90, "cudaLaunchKernel", 1910, 1930)
    story.call(91, "cuLaunchKernelEx", 1915, 1925)
    assert "launches without their kernel (1)" in found_in(story).missing["kernels lost"]

    story.kernel(answered, "twice", 1940, 1950)
    assert found_in(story).missing == {}


def test_a_clock_that_is_a_millisecond_behind_is_caught() -> None:
    late = a_step()
    late.marks = [(time + 10**6, event) for time, event in late.marks]
    late.events = [replace(each, begin=each.begin + 10**6, end=each.end + 10**6) for each in late.events]

    missing = found_in(shifted(late, -(10**6))).missing

    assert missing["clock of kernels"] == "the device's times may be off by 1000 µs"


def test_a_clock_that_is_a_microsecond_behind_is_reported_as_such() -> None:
    found = found_in(shifted(a_step(), -1000))

    assert found.samples(counters.CLOCK_RESIDUAL) == [(1000 - 20, 1000, 2350)]  # gemm began 20 ns after its call
    assert found.missing == {}


def test_a_kernel_with_another_calls_number_is_caught() -> None:
    right, swapped = found_in(a_step()), a_step()
    swapped.events = [
        replace(each, number=14, operator=6) if each.named == "gemm" else each for each in swapped.events
    ]  # as if backward had launched it

    wrong = found_in(swapped)

    assert (right.span("gemm"), wrong.span("gemm")) == ("aten::addmm", "aten::mm")
    assert wrong.samples(counters.CLOCK_RESIDUAL) == [(1530 - 1350, 1000, 2350)]
    assert "launches without their kernel (1)" in wrong.missing["kernels lost"]


def test_a_window_without_any_kernel_says_what_may_be_the_reason() -> None:
    story = a_step()
    story.events = [each for each in story.events if each.kind not in ("kernel", "gpu_memcpy")]

    found = found_in(story)

    assert len(found.tables["kernel"]) == 0
    assert found.missing == {"kernels": gpu_activity.NO_KERNELS}


def test_events_of_other_kinds_are_not_kernels() -> None:
    story = a_step()
    others: Sequence[str] = ("gpu_user_annotation", "cuda_sync", "cuda_event", "overhead", "python_function")
    story.events += [FakeEvent(kind, kind, 12, 2, 7, 1350, 1500) for kind in others]

    assert len(found_in(story).kernels()) == 8


def test_a_backward_pass_on_a_thread_of_its_own_ends_the_forward_phase_of_the_loop() -> None:
    """Torch reports its nodes as lying in what the loop's thread has open, here a range around the whole step."""
    story = Story()
    story.mark(0, Point.BEGIN)
    around = story.operator(1, "step", 10, 900, scope=Scope.USER)
    story.mark(20, Point.FORWARD, "forward")
    story.operator(2, "aten::addmm", 30, 40, number=5, parent=around)
    name = "autograd::engine::evaluate_function: AddmmBackward0"
    node = story.operator(3, name, 100, 200, thread=AUTOGRAD, number=5, parent=around)
    inside = story.operator(4, "AddmmBackward0", 110, 190, thread=AUTOGRAD, scope=Scope.BACKWARD, number=5, parent=node)
    story.operator(5, "aten::mm", 120, 180, thread=AUTOGRAD, parent=inside)
    name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    leaf = story.operator(6, name, 210, 260, thread=AUTOGRAD, parent=around)
    story.operator(7, "torch::autograd::AccumulateGrad", 220, 250, thread=AUTOGRAD, scope=Scope.BACKWARD, parent=leaf)
    story.operator(8, "aten::item", 500, 510, parent=around)
    story.mark(950, Point.STEP)

    found = found_in(story)

    rows = {found.strings[row["name"]]: row for row in found.tables["span"]}
    assert {name: Phase(rows[name]["phase"]).name for name in ("aten::addmm", "aten::mm", "aten::item")} == {
        "aten::addmm": "FORWARD",
        "aten::mm": "BACKWARD",
        "aten::item": "OUTSIDE",
    }
    forward = rows["forward"]
    assert (int(forward["start_ns"]), int(forward["end_ns"])) == (20, 100)
