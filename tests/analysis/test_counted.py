"""A counted step beside the kernels window: what belongs together, and what of the peak was used, worked out by hand.

Peaks of 100 FLOP/s in FP32 and 1000 in TF32. A step of the kernels window has, of 10 s in kernels, 4 s of a product,
twice 2 s of an addition and 2 s of a copy by the driver.
"""

import pytest
from make import KernelStory
from plain_rows import table

from tbdprof.analysis.kernels.counted import counted
from tbdprof.analysis.kernels.executions import gather
from tbdprof.analysis.kernels.kernel_names import bare, canonical
from tbdprof.facts import counters
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import KernelKind, Operation, Peaks, Phase, Strings
from tbdprof.facts.work import Work
from tbdprof.results.kernels import Counted

SECOND = 1_000_000_000
PEAKS = Peaks({"fp32": 100.0, "tf32": 1000.0}, None, {})
GRID, BLOCK = "[16, 8, 1]", "[256, 1, 1]"
# m·n·k of 10, 2 and 4: 160 FLOP.
PRODUCT = Work(Operation.MATMUL, {"batch": 1, "rows": 10, "columns": 2, "inner": 4}, precision="fp32")
GEMM = {
    counters.COUNTED_NS: 3e9,
    counters.COUNTED_FFMA: 60.0,
    counters.COUNTED_FADD: 30.0,
    counters.COUNTED_FMUL: 10.0,
    counters.COUNTED_FP32_PIPE: 0.5,
    counters.COUNTED_TENSOR_PIPE: 0.0,
    counters.COUNTED_DRAM_BYTES: 1000.0,
    counters.counted_tensor_ops("tf32"): 0.0,
}
ADD = {
    counters.COUNTED_NS: 1e9,
    counters.COUNTED_FFMA: 0.0,
    counters.COUNTED_FADD: 20.0,
    counters.COUNTED_FMUL: 0.0,
    counters.COUNTED_FP32_PIPE: 0.1,
    counters.COUNTED_TENSOR_PIPE: 0.0,
    counters.counted_tensor_ops("tf32"): 0.0,
}
Counts = dict[str, float]
Rows = list[tuple[str, str, str, Counts]]
STEP: Rows = [("gemm", GRID, BLOCK, GEMM), ("add", GRID, BLOCK, ADD), ("add", GRID, BLOCK, ADD)]


def story(*, product: str = "gemm", addition: str = "add", other: str = "add") -> KernelStory:
    kernel_story = KernelStory(device="cuda:0")
    kernel_story.settle()
    for begin in (0, 20 * SECOND):
        kernel_story.step(begin, begin + 12 * SECOND)
        span = kernel_story.operator("aten::mm", Phase.FORWARD, begin, begin + SECOND, work=PRODUCT)
        kernel_story.kernel(product, begin, begin + 4 * SECOND, span=span, grid=GRID, block=BLOCK)
        kernel_story.kernel(addition, begin + 4 * SECOND, begin + 6 * SECOND, grid=GRID, block=BLOCK)
        kernel_story.kernel(other, begin + 6 * SECOND, begin + 8 * SECOND, grid=GRID, block=BLOCK)
        kernel_story.kernel("Memcpy HtoD", begin + 8 * SECOND, begin + 10 * SECOND, kind=KernelKind.COPY)
    return kernel_story


def counted_window(strings: Strings, rows: Rows) -> Window:
    add = strings.add
    kernels = [(add(name), 0, add("cuda:0"), 7, -1, 0, 0, -1, add(grid), add(block)) for name, grid, block, _ in rows]
    counts = [(place, add(name), value) for place, row in enumerate(rows) for name, value in row[3].items()]
    return Window(
        1,
        "counted",
        "complete",
        {"kernel": table("kernel", list[tuple[object, ...]](kernels)), "count": table("count", counts)},
    )


def recording(rows: Rows = STEP, **names: str) -> Recording:
    made = story(**names).recording(peaks=PEAKS)
    made.windows.append(counted_window(made.strings, rows))
    return made


def result(made: Recording) -> Counted:
    found = counted(made, gather(made), active_seconds=10.0).value
    assert found is not None
    return found


def test_flops_of_a_kernel_are_twice_the_fused_and_its_utilization_is_over_the_time_in_training() -> None:
    gemm, add = result(recording()).kernels

    assert gemm.key == ("gemm", GRID, BLOCK)
    assert gemm.fp32_flops == 2 * 60 + 30 + 10
    assert gemm.fp32_utilization == pytest.approx(160 / (100 * 4)), "4 s in training, not 3 s under the tool"
    assert (gemm.fp32_pipe, gemm.tensor_pipe, gemm.dram_bytes) == (0.5, 0.0, 1000.0)
    assert (add.calls, add.fp32_flops, add.launches) == (2.0, 40.0, 2)
    assert add.fp32_utilization == pytest.approx(40 / (100 * 4))
    assert add.dram_bytes is None


def test_the_step_has_its_totals_beside_the_analytic_one() -> None:
    found = result(recording())

    assert (found.launches, found.fp32_flops, found.dram_bytes) == (3, 200.0, 1000.0)
    assert found.analytic_flops == pytest.approx(160.0)
    assert found.fp32_utilization == pytest.approx(200 / (100 * 10))
    assert found.flop_utilization == pytest.approx(0.2)
    assert (found.unmatched, found.unmatched_share, found.left_over) == ((), 0.0, 0), "a copy has no launch"
    assert found.violations == ()


def test_tensor_cores_count_against_the_peak_of_their_operands() -> None:
    tensor = GEMM | {counters.counted_tensor_ops("tf32"): 2000.0, counters.COUNTED_TENSOR_PIPE: 0.6}

    gemm, _ = result(recording([("gemm", GRID, BLOCK, tensor), *STEP[1:]])).kernels

    assert gemm.tensor_flops == {"tf32": 2000.0}
    assert gemm.tensor_utilization == pytest.approx(2000 / (1000 * 4))
    assert gemm.flop_utilization == pytest.approx(0.5 + 0.4)


def test_tensor_cores_that_work_in_a_type_nobody_counted_leave_the_flops_unknown() -> None:
    hidden = GEMM | {counters.COUNTED_TENSOR_PIPE: 0.6}

    gemm, add = result(recording([("gemm", GRID, BLOCK, hidden), *STEP[1:]])).kernels

    assert gemm.flop_utilization is None
    assert gemm.fp32_utilization is not None
    assert add.flop_utilization == pytest.approx(0.1)


def test_a_tensor_pipe_that_multiplied_pairs_of_halves_alone_did_no_product() -> None:
    pairs = GEMM | {counters.COUNTED_TENSOR_PIPE: 0.0121, counters.COUNTED_PAIRS_PIPE: 0.0120}
    more = ADD | {counters.COUNTED_TENSOR_PIPE: 0.0121, counters.COUNTED_PAIRS_PIPE: 0.0021}

    found = result(recording([("gemm", GRID, BLOCK, pairs), ("add", GRID, BLOCK, more), ("add", GRID, BLOCK, more)]))
    gemm, add = found.kernels

    assert gemm.flop_utilization == pytest.approx(0.4)
    assert gemm.tensor_pipe == 0.0121, "which is compared with what was sampled of the same pipe"
    assert add.flop_utilization is None, "a percent of its time is left, of products of a type nobody counted"


def test_what_was_not_reported_is_not_zero() -> None:
    bare_counts = {counters.COUNTED_NS: 3e9, counters.COUNTED_FFMA: 1.0}

    gemm, _ = result(recording([("gemm", GRID, BLOCK, bare_counts), *STEP[1:]])).kernels

    assert gemm.fp32_flops is None
    assert gemm.fp32_pipe is None
    assert gemm.fp32_utilization is None
    assert gemm.flop_utilization is None


def test_the_same_name_in_the_tools_spelling_is_the_same_kernel() -> None:
    ours = "void at::add<4, float, std::array<char*, 3ul> >(int, float)"
    theirs = "void at::add<(int)4, float, std::array<char *, (unsigned long)3>>(int, T2)"

    found = result(recording([STEP[0], *2 * [(theirs, GRID, BLOCK, ADD)]], addition=ours, other=ours))

    assert [each.launches for each in found.kernels] == [1, 2]


def test_kernels_whose_names_differ_are_separated_by_their_place_in_the_step() -> None:
    ours = [f"void at::each<at::{functor}(T1)::{{lambda(int)#1}}>(int)" for functor in ("mul", "div")]
    theirs = [f"void at::each<at::{functor}(const X &)::[lambda(int) (instance 1)]>(int)" for functor in ("mul", "div")]
    twice = ADD | {counters.COUNTED_FADD: 40.0}
    rows = [STEP[0], (theirs[0], GRID, BLOCK, ADD), (theirs[1], GRID, BLOCK, twice)]

    found = result(recording(rows, addition=ours[0], other=ours[1]))

    flops = {each.key[0]: each.fp32_flops for each in found.kernels}
    assert flops == {"gemm": 160.0, ours[0]: 20.0, ours[1]: 40.0}


def test_kernels_whose_number_differs_are_not_guessed_at() -> None:
    ours = [f"void at::each<at::{functor}(T1)>(int)" for functor in ("mul", "div")]
    theirs = [f"void at::each<at::{functor}(X)>(int)" for functor in ("mul", "div", "sub")]
    rows = [STEP[0], *((name, GRID, BLOCK, ADD) for name in theirs)]

    found = result(recording(rows, addition=ours[0], other=ours[1]))

    assert [each.key[0] for each in found.kernels] == ["gemm"]
    assert sorted(key[0] for key in found.unmatched) == sorted(ours)
    assert found.unmatched_share == pytest.approx(4 / 10)
    assert found.left_over == 3


def test_another_grid_is_another_kernel() -> None:
    found = result(recording([("gemm", "[1, 1, 1]", BLOCK, GEMM), *STEP[1:]]))

    assert [key[0] for key in found.unmatched] == ["gemm"]
    assert found.unmatched_share == pytest.approx(0.4)


def test_a_count_above_what_can_be_is_an_error() -> None:
    planted = GEMM | {counters.COUNTED_FFMA: 250.0}

    found = result(recording([("gemm", GRID, BLOCK, planted), *STEP[1:]]))

    assert found.violations == (f"counted above 1 of gemm {GRID}: 1.350",)


def test_without_a_counted_step_there_is_nothing() -> None:
    made = recording()
    made.windows.pop()

    assert counted(made, gather(made), 10.0).value is None
    assert counted(recording([]), gather(made), 10.0).value is None


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("sm90_xmma_gemm_f32f32_tn", "sm90_xmma_gemm_f32f32_tn"),
        ("void f<float>(float*)", "void f<float>(T1 *)"),
        ("void (anonymous namespace)::f<true, 2>(int)", "void <unnamed>::f<(bool)1, (int)2>(int)"),
        ("void f<a::B, 3ul>(a::B)", "void f<a::B, (unsigned long)3>(T1)"),
        ("f<g()::{lambda(float)#2}>(int) [clone .x]", "f<g()::[lambda(float) (instance 2)]>(int)"),
        ("void f<-1>()", "void f<(int)-1>()"),
        ("std::enable_if<(4>2), void>::type f<int>(int)", "std::enable_if<(4>2), void>::type f<int>(T1)"),
        (
            "void f<h::operator()(int) const::{lambda()#1}>(int)",
            "void f<h::operator ()(int) const::[lambda() (instance 1)]>(T1)",
        ),
    ],
)
def test_spellings_of_one_name(ours: str, theirs: str) -> None:
    assert canonical(ours) == canonical(theirs)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("void f<(int)4>(int)", "void f<(int)8>(int)"),
        ("void f<float>(int)", "void f<double>(int)"),
        ("a::f(int)", "b::f(int)"),
        ("f<[lambda(int) (instance 1)]>()", "f<[lambda(int) (instance 2)]>()"),
    ],
)
def test_names_of_two_kernels_stay_two(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


def test_the_bare_name_is_the_function() -> None:
    assert bare("void at::native::f<(int)4, g<int>>(int, T2)") == "at::native::f"
