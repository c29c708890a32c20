"""The paper's figures from sweeps: what is drawn equals the figures of the points, and what is missing is said."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tbdprof.report import sweep as reports
from tbdprof.report.figures import captions, kernel_tables, panels
from tbdprof.report.figures.panels import Mark
from tbdprof.results.kernels import Group, LowUtilization
from tbdprof.results.memory import CATEGORIES
from tbdprof.results.sweep import End, Growth, Knee, KneeOf, PointFigures, Sweep, SweepPoint
from tbdprof.results.time import Rate

KERNEL = Group(
    "gemm|`x`",
    "mm",
    "matmul",
    "forward",
    ("fc",),
    1.0,
    1.0,
    0.25,
    0.125,
    1.0,
    None,
    "fp32",
    True,
    None,
    None,
    None,
    None,
)
FIGURES = PointFigures(
    rate=Rate(100.0, (90.0, 120.0)),
    unit="images",
    step_seconds=0.1,
    peak_bytes=3 * 2**30,
    category_bytes={name: place * 2**28 for place, name in enumerate(CATEGORIES)},
    busy=0.5,
    fp32=0.25,
    drifted=False,
    complete=True,
    model="resnet50",
    framework="torch 2.13",
    device="One",
    on_gpu=True,
    precision="fp32",
    threads=2,
    low_utilization=LowUtilization(0.5, 0.9, (KERNEL,) * 7, ()),
    cpu=0.1,
    exposed=None,
)


def point(framework: str, size: int, end: End = End.FINISHED, figures: PointFigures | None = FIGURES) -> SweepPoint:
    if figures is not None:
        figures = replace(figures, rate=None if figures.rate is None else Rate(10.0 * size, (9.0 * size, 12.0 * size)))
    settings = {"model": "resnet50", "framework": framework, "batch_size": size}
    return SweepPoint(f"{framework}-{size}", settings, end, None, 1.0, "here", figures if end is End.FINISHED else None)


def sweep(*points: SweepPoint) -> Sweep:
    return Sweep("resnet50", ("model", "framework", "batch_size"), "batch_size", points, (), 0)


BOTH = sweep(
    point("torch", 4),
    point("torch", 1),
    point("torch", 16, End.OUT_OF_MEMORY),
    point("mxnet", 1),
    point("mxnet", 4, figures=replace(FIGURES, rate=None, busy=None, fp32=None, category_bytes=None)),
    point("mxnet", 16, End.FAILED),
)


def test_throughput_has_a_line_for_each_framework_over_ascending_batches() -> None:
    (panel,) = panels.throughput(BOTH)

    torch, mxnet = {each.label: each for each in panel.series}["torch"], panel.series[-1]
    assert (panel.title, panel.unit) == ("resnet50", "images/s")
    assert torch.marks == (Mark(1, 10.0, 9.0, 12.0), Mark(4, 40.0, 36.0, 48.0))
    assert (torch.full, torch.lacking) == ((16,), ())
    assert (mxnet.label, mxnet.full, mxnet.lacking) == ("mxnet", (), (4, 16))


@pytest.mark.parametrize(("figure", "value"), [(panels.busy, 50.0), (panels.fp32, 25.0)])
def test_shares_are_in_percent(figure, value: float) -> None:
    (panel,) = figure(BOTH)

    assert "%" in panel.unit
    assert [mark.value for series in panel.series for mark in series.marks] == [value] * 3


def test_memory_is_stacked_by_category_and_what_does_not_fit_has_its_reason() -> None:
    (panel,) = panels.memory(BOTH)

    bars = {bar.label: bar for bar in panel.bars}
    assert list(bars) == ["torch (1)", "torch (4)", "torch (16)", "mxnet (1)", "mxnet (4)", "mxnet (16)"]
    assert panel.unit == "memory at the peak (GiB)"
    assert bars["torch (4)"].parts == {name: place / 4 for place, name in enumerate(CATEGORIES)}
    assert [bars[label].reason for label in ("torch (16)", "mxnet (4)", "mxnet (16)")] == [
        "out of memory",
        "not measured",
        "failed",
    ]


def test_small_memory_has_a_small_unit() -> None:
    small = replace(FIGURES, category_bytes=dict.fromkeys(CATEGORIES, 2**12))

    (panel,) = panels.memory(sweep(point("torch", 1, figures=small)))

    assert panel.unit == "memory at the peak (KiB)"
    assert {*panel.bars[0].parts.values()} == {4.0}


def test_two_devices_are_compared_at_the_largest_batch_of_both() -> None:
    faster = replace(FIGURES, device="Two", busy=0.25)
    other = sweep(point("torch", 1, figures=faster), point("torch", 2, figures=faster), point("mxnet", 2))

    one = sweep(point("torch", 1), point("torch", 4), point("tensorflow", 1))
    throughput, busy, _ = panels.devices(one, other, ("a", "b"))

    assert [bar.label for bar in throughput.bars] == ["resnet50 torch (1)"]
    assert throughput.bars[0].parts == {"One": 1.0, "Two": 1.0}
    assert busy.bars[0].parts == {"One": 50.0, "Two": 25.0}
    assert busy.names == ("One", "Two")


@pytest.mark.parametrize(
    ("names", "told_apart"),
    [(("a", "b"), ("One (a)", "One (b)")), (("a", "a"), ("One (a, first)", "One (a, second)"))],
)
def test_two_devices_of_one_name_have_a_bar_each(names: tuple[str, str], told_apart: tuple[str, str]) -> None:
    slower = sweep(point("torch", 1, figures=replace(FIGURES, busy=0.25)))

    _, busy, _ = panels.devices(sweep(point("torch", 1)), slower, names)

    assert busy.names == told_apart
    assert busy.bars[0].parts == dict(zip(told_apart, (50.0, 25.0), strict=True))


def test_a_caption_says_what_was_measured_where_and_how() -> None:
    text = captions.caption(4, [BOTH])

    for word in ("clean windows", "95 %", "Device: One.", "torch 2.13", "fp32", "× marks", "figure 4 of the TBD paper"):
        assert word in text
    assert "On a CPU" not in captions.caption(5, [BOTH])
    of_cpu = sweep(point("torch", 1, figures=replace(FIGURES, on_gpu=False)))
    assert "On a CPU, operators stand for kernels." in captions.caption(5, [of_cpu])
    assert "2 CPU threads" in captions.caption(4, [of_cpu])
    assert "×" not in captions.caption(4, [of_cpu])


def test_a_caption_and_the_report_say_where_other_processes_took_cores() -> None:
    crowded = replace(FIGURES, disturbed=True)
    found = sweep(point("torch", 1, figures=crowded), point("torch", 2), point("torch", 4, figures=crowded))

    assert "Other processes took cores while 2 of 3 points were measured." in captions.caption(5, [found])
    assert "took cores" not in captions.caption(8, [found]) + captions.caption(5, [BOTH])
    assert f"took cores during {found.points[0].name} and 1 more" in " ".join(reports.render(found).split())
    assert "took cores" not in reports.render(BOTH)


def test_the_kernel_tables_are_of_the_largest_batch_that_finished() -> None:
    chosen = kernel_tables.chosen(BOTH)

    assert {label: each.settings["batch_size"] for label, each in chosen.items()} == {
        "resnet50 torch": 4,
        "resnet50 mxnet": 4,
    }
    table = kernel_tables.markdown("resnet50 torch", chosen["resnet50 torch"], "batch_size")
    assert "Longest 5 kernels with FP32 utilization below the average (resnet50 torch, batch 4)" in table
    assert table.count("| 25.0 % | 12.5 % | `gemm¦x` |") == 5


def test_the_report_has_a_row_for_each_point_and_a_sentence_for_each_knee() -> None:
    knee = Knee(4, 4, Growth.SATURATED, 16, 160.0, "images", 16, False, (1, 4, 16), 0.05)
    answers = {
        "the knee is batch 4: the smallest within 5 % of the best (160 images/s at 16)": knee,
        "the knee is batch 1 or 4": replace(knee, low=1),
        "saturated, but cannot tell the knee at this noise: batch 1 to 16": replace(knee, low=1, high=16),
        "cannot tell at this noise whether throughput is saturated at batch 16; the knee is 4": replace(
            knee, growth=Growth.UNCLEAR
        ),
        "still grows at batch 16, the largest that was run": replace(knee, growth=Growth.GROWING),
        "the largest that fits into memory": replace(knee, growth=Growth.GROWING, ends_at_memory=True),
    }
    found = replace(BOTH, knees=tuple(KneeOf({"framework": "torch"}, each) for each in answers.values()))

    text = reports.render(found, width=400)

    for answer in answers:
        assert f"torch: {answer}" in text or answer in text
    assert len(re.findall("images/s +", text)) >= 3
    assert "torch-16: out of memory" in text
    assert "resnet50" not in text.splitlines()[1]  # one model: no column


def test_names_that_would_act_on_a_terminal_are_shown(tmp_path: Path) -> None:
    hostile = replace(point("torch", 1), name="\x1b[31mred[/bold]", end=End.FAILED, reason="\x1b]0;x\x07")

    text = reports.render(sweep(hostile), width=200)

    assert "\x1b" not in text
    assert "red[/bold]" in text


def test_the_figures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from tbdprof.report.figures import drawing

    (panel,) = panels.throughput(BOTH)
    figure = drawing.lines([panel], captions.caption(4, [BOTH]))
    stacked = drawing.stacks(panels.memory(BOTH), "$caption")
    drawing.save(figure, tmp_path / "a.svg")
    drawing.save(stacked, tmp_path / "a.png")

    (axes,) = figure.axes
    drawn = {line.get_label(): line for line in axes.containers}
    assert list(drawn["torch"].lines[0].get_ydata()) == [10.0, 40.0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "4", "16"]
    assert [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "x"] == [[2]]
    heights = [patch.get_height() for patch in stacked.axes[0].patches if patch.get_x() < 0]
    assert sum(heights) == pytest.approx(sum(range(len(CATEGORIES))) / 4)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
