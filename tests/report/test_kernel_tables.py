"""Tables V and VI of the TBD paper from a run's kernels, and each kernel against the nearer ceiling."""

from dataclasses import replace

import pytest
from report.test_reporters import FULL, profiled
from report_results import CONVOLUTION, NORMALIZATION, PEAKS, UNCOUNTED, measured

from tbdprof.analysis.summary import summarize
from tbdprof.report import terminal
from tbdprof.report.terminal_parts.tables import ABOVE, short
from tbdprof.results.kernels import FusedKernel, LowUtilization, headroom
from tbdprof.results.summary import Summary


def summary(**changes: object) -> Summary:
    return measured(summarize(profiled(FULL)), **changes)


def tables(full: bool = False, **changes: object) -> dict[str, list[str]]:
    """Return the lines of each table of kernels by its title's first word or words."""
    text = terminal.render(summary(**changes), width=120, full=full)
    parts = [part.splitlines() for part in text.split("\n\n")]
    return {part[0]: part[1:] for part in parts if part[0].startswith(("Kernels", "Roofline"))}


def test_a_kernel_below_the_average_has_its_share_utilization_operator_phase_layer_and_calls():
    head, rule, line = tables()["Kernels below the average utilization of 60.0 % (87.5 % of busy time counted)"]

    assert head.split() == ["share", "utilization", "kernel", "operator", "phase", "layer", "calls"]
    assert set(rule) == {"─"}
    assert line.split("  ")[0] == "25.0 %"
    assert line.split() == [
        "25.0", "%", "10.0", "%", "at::native::batch_norm<float>", "aten::batch_norm", "backward", "bn1", "1",
    ]  # fmt: skip


def test_kernels_without_a_count_stand_below_with_no_utilization():
    head, _, line = tables()["Kernels without a count"]

    assert head.split() == ["share", "kernel", "phase", "calls"]  # columns that would be empty are not there
    assert line.split() == ["12.5", "%", "mine::fused", "update", "1.5"]


def test_kernels_without_a_count_that_take_next_to_no_time_are_one_line():
    rare = replace(UNCOUNTED, share=0.004)
    many = {"low_utilization": LowUtilization(0.6, 0.992, (NORMALIZATION,), (rare, rare))}

    assert "\nKernels without a count: 2, together 0.8 % of busy time\n" in terminal.render(summary(**many), width=100)
    assert len(tables(full=True, **many)["Kernels without a count"]) == 2 + 2


def test_of_kernels_without_a_count_those_that_take_next_to_no_time_are_left_out():
    rare = replace(UNCOUNTED, share=0.004)
    shown = tables(low_utilization=LowUtilization(0.6, 0.871, (NORMALIZATION,), (UNCOUNTED, rare)))

    assert [line.split("  ")[0] for line in shown["Kernels without a count"][2:]] == ["12.5 %", "(1 more, 0.4 %)"]


def test_below_a_table_stands_what_a_fused_kernel_was_made_of():
    relu, add = FusedKernel("triton_relu_0", ("relu",), ("relu_1",)), FusedKernel("cpp_add_0", ("add", "relu"), None)
    many = FusedKernel("cpp_many_0", tuple(f"operator{each}" for each in range(14)), None)
    rows = [
        replace(UNCOUNTED, fused=each) for each in ((relu,), (add, relu), (FusedKernel("cpp_0", None, None),), (many,))
    ]
    shown = tables(low_utilization=LowUtilization(0.6, 0.871, (NORMALIZATION,), tuple(rows)))["Kernels without a count"]

    assert shown[2 + len(rows) :][:3] == [
        "triton_relu_0: made of relu; source nodes relu_1",
        "cpp_add_0 and 1 more: made of add, relu; source nodes relu_1",
        "cpp_0: made of operators that are not known",
    ]
    assert "operator11 and 2 more" in " ".join(shown)


def test_the_roofline_leaves_out_what_takes_no_time_and_says_so():
    rare = replace(NORMALIZATION, name="rare", share=0.0004)
    roofline = tables(full=True, groups=(CONVOLUTION, NORMALIZATION, rare, rare))["Roofline"]

    assert "rare" not in "\n".join(roofline)
    assert "(2 more, 0.1 %)" in roofline


def test_of_several_layers_the_longest_is_named_and_the_others_counted():
    (line,) = tables(full=True)["Kernels at the average or above"][2:]

    assert "layer1.0.conv1  +2 " in line


def test_what_the_tables_leave_out_is_said_with_its_share():
    many = tuple(replace(NORMALIZATION, name=f"k{place}", share=0.01) for place in range(13))
    changes = {"low_utilization": LowUtilization(0.6, 0.875, many, (UNCOUNTED,)), "groups": (*many, UNCOUNTED)}
    title = "Kernels below the average utilization of 60.0 % (87.5 % of busy time counted)"

    assert tables(**changes)[title][-1] == "(3 more, 3.0 %)"
    assert len(tables(**changes)[title]) == 2 + 10 + 1
    assert len(tables(full=True, **changes)[title]) == 2 + 13


def test_in_full_every_kernel_is_in_exactly_one_table_and_every_counted_one_under_the_roofline():
    shown = tables(full=True)
    *lists, roofline = ["\n".join(lines) for lines in shown.values()]

    for name in ("mkldnn_convolution", "batch_norm<float>", "mine::fused"):
        assert sum(name in lines for lines in lists) == 1, name
    assert "mine::fused" not in roofline
    assert "62.5 %  aten::mkldnn_convolution       forward    20.00    80.00  4.00  compute      1.2×" in roofline
    assert "ceiling fp32: 100.00 GFLOP/s (3×3 convolution 64→64, 56×56, batch 8, 2 threads)" in roofline
    assert "ceiling memory: 10.00 GB/s (copy)" in roofline


def test_headroom_is_to_the_nearer_ceiling():
    assert headroom(CONVOLUTION, PEAKS) == pytest.approx(100 / 80)
    assert headroom(NORMALIZATION, PEAKS) == pytest.approx(10 / 5)
    assert headroom(UNCOUNTED, PEAKS) is headroom(CONVOLUTION, None) is None
    assert headroom(CONVOLUTION, replace(PEAKS, flops_per_s={"bf16": 1e12})) is None


HALVES = replace(
    PEAKS,
    flops_per_s={"fp32": 100e9, "bf16": 800e9},
    vector_flops_per_s={"fp32": 100e9, "bf16": 200e9},
    sources={"vector bf16": "its clock"},
)


def test_of_what_tensor_cores_cannot_do_the_peak_is_below_the_table_and_among_the_ceilings():
    norm = replace(NORMALIZATION, precision="bf16", limit="compute")
    low = LowUtilization(0.6, 0.875, (norm,), (UNCOUNTED,))
    recording = measured(summarize(profiled(FULL))).recording
    run = replace(recording.run, peaks=HALVES)
    shown = tables(full=True, low_utilization=low, groups=(CONVOLUTION, norm), recording=replace(recording, run=run))
    below, roofline = (next(lines for title, lines in shown.items() if title.startswith(start)) for start in STARTS)

    others = "kernels other than matmuls and convolutions are compared with the peak without tensor cores"
    assert below[-1] == f"{others}: bf16 200.00 GFLOP/s"
    assert "ceiling bf16: 800.00 GFLOP/s (source not reported)" in roofline
    assert "ceiling bf16 without tensor cores: 200.00 GFLOP/s (its clock)" in roofline
    assert not [line for line in roofline if "fp32 without" in line]
    assert headroom(norm, HALVES) == pytest.approx(200 / 10)
    assert headroom(replace(norm, of_product=True), HALVES) == pytest.approx(800 / 10)


STARTS = ("Kernels below", "Roofline")


def test_where_all_arithmetic_has_one_peak_nothing_is_said_of_another():
    assert not [line for lines in tables(full=True).values() for line in lines if "tensor cores" in line]


def test_a_count_without_a_peak_to_compare_it_with_is_said():
    counted = [replace(NORMALIZATION, precision=each, utilization=None) for each in ("int64", "bf16")]
    low = LowUtilization(0.6, 0.875, (NORMALIZATION,), (*counted, UNCOUNTED))
    recording = measured(summarize(profiled(FULL))).recording
    run = replace(recording.run, peaks=replace(HALVES, vector_flops_per_s={"fp32": 100e9}))

    shown = tables(low_utilization=low, recording=replace(recording, run=run))
    assert shown["Kernels without a count"][-1] == (
        "some have a count, but their peak is not known: bf16 without tensor cores, int64"
    )


def test_beyond_a_ceiling_there_is_no_headroom():
    beyond = replace(NORMALIZATION, bytes_per_s=12e9)
    (line,) = [line for line in tables(full=True, groups=(beyond,))["Roofline"] if "batch_norm" in line]

    assert headroom(beyond, PEAKS) == pytest.approx(10 / 12)
    assert line.endswith("  none")


def test_a_utilization_above_100_percent_is_printed_and_marked_below_its_table():
    above = replace(CONVOLUTION, utilization=1.25)
    (*_, line, note) = tables(full=True, groups=(above, NORMALIZATION, UNCOUNTED))["Kernels at the average or above"]

    assert "125.0 % !" in line
    assert note == ABOVE


def test_without_an_average_kernels_are_listed_by_time():
    shown = tables(low_utilization=None)

    assert list(shown) == ["Kernels, longest first"]
    assert len(shown["Kernels, longest first"]) == 2 + 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("void cudnn::bn_fw<float, int=512>(float*, int)", "cudnn::bn_fw<float, int=512>"),
        ("aten::relu", "aten::relu"),
        ("(anonymous namespace)::kernel(int)", "(anonymous namespace)::kernel"),
        ("void (anonymous namespace)::softmax<float>(float*)", "(anonymous namespace)::softmax<float>"),
        ("at::native::(anonymous namespace)::fill<f(int)>(int)", "at::native::(anonymous namespace)::fill<f(int)>"),
    ],
)
def test_a_kernels_name_loses_what_cpp_puts_around_it(name: str, said: str):
    assert short(name) == said


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("part", ["kernels", "layers", "memory"])
def test_a_part_fits_its_terminal_and_never_cuts_a_number(width: int, part: str):
    lines = terminal.render_part(summary(), part, width=width).splitlines()

    assert max(map(len, lines)) <= width
    assert not any(line.rstrip("…").endswith((" .", "%…")) for line in lines)
    if part == "kernels":
        assert sum(line.startswith(("62.5 %", "25.0 %")) for line in lines) == 4
