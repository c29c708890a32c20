"""The first screen: one figure a line, what binds the run first, and nothing said twice."""

from dataclasses import replace

import pytest
from report.test_reporters import FULL, profiled
from report_results import FLOP, TIME, VERDICT, measured

from tbdprof.analysis.summary import summarize
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import Role
from tbdprof.report import terminal
from tbdprof.report.terminal_parts.overview import AT_MOST
from tbdprof.report.terminal_parts.tables import ABOVE
from tbdprof.results.kernels import Utilization
from tbdprof.results.summary import Summary
from tbdprof.results.time import CpuUtilization, PhaseTime

FACTS = {
    "model": "resnet50",
    "device_name": "AMD EPYC 7763 64-Core Processor",
    "threads": 2,
    "batch_size": 4,
    "independent_total": None,
}
BUSY = (*TIME.phases[:3], PhaseTime("recompute", 0.02, 0.02, 0.1), *TIME.phases[4:5])


def full_summary(**run_changes: object) -> Summary:
    return summarize(profiled(FULL, **run_changes))


def screen(width: int = 100, **changes: object) -> str:
    """Return the report down to its first table."""
    text = terminal.render(measured(full_summary(**FACTS), **changes), width=width)
    return text[: text.index("\n\nKernels")]


def row(label: str, **changes: object) -> str:
    """Return what the first screen says behind a label."""
    (line,) = [line for line in screen(160, **changes).splitlines() if line.startswith(label)]
    return line.removeprefix(label).strip()


def test_the_first_screen_holds_the_verdict_and_every_figure_in_24_lines_of_100_columns():
    long = replace(VERDICT, sentence="bound by compute: " + "x" * 120, advice=("y" * 110,))
    five_phases = replace(TIME, phases=BUSY)

    lines = screen(verdict=long, step_time=five_phases).splitlines()

    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    for label in ("try first", "throughput", "device busy", "FP32 utilization", "peak", "idle", "memory", "recompute"):
        assert sum(line.startswith(label) for line in lines) == 1, label


def test_the_verdict_comes_before_all_figures_with_what_to_try_first():
    text = screen()

    assert text.index("bound by compute: 50.0 % of the step is products") < text.index("throughput")
    assert "try first  a lower precision\n" in text
    assert "a larger batch" not in text


def test_in_full_all_advice_is_given():
    text = terminal.render(measured(full_summary()), width=100, full=True)

    assert "try first  a lower precision\nthen       a larger batch\n" in text


def test_utilization_says_its_level_its_coverage_its_bound_and_its_peak():
    assert row("FP32 utilization") == "50.0 % while busy → up to 2.0× (analytic, counted in 62.5 % of busy time)"
    assert row("peak") == "100.00 GFLOP/s: 3×3 convolution 64→64, 56×56, batch 8, 2 threads"
    assert row("device busy") == "79.0 % of a clean step; 80.0 % in the kernels window"


def test_a_run_in_another_precision_names_it():
    bf16 = Utilization(0.79, 0.8, replace(FLOP, precision="bf16"), None, 1e9, 8e9)

    assert row("BF16 utilization", utilization=bf16).startswith("50.0 % while busy")
    assert "FP32 utilization" not in screen(utilization=bf16)


def test_above_100_percent_is_printed_and_marked_and_implies_no_bound():
    above = replace(FLOP, value=1.25, bound=0.8)
    text = screen(120, utilization=Utilization(0.79, 0.8, above, above, 1e9, 8e9))

    assert "125.0 % while busy (analytic" in text
    assert ABOVE in text
    assert "up to" not in text


def test_a_utilization_whose_peak_was_disturbed_is_an_upper_limit():
    above = replace(FLOP, value=1.368, bound=None, at_most=True)

    said = row("FP32 utilization", utilization=Utilization(0.79, 0.8, above, above, 1e9, 8e9))

    assert said == "at most 136.8 % while busy (analytic, counted in 62.5 % of busy time)"
    assert AT_MOST in screen(120, utilization=Utilization(0.79, 0.8, above, above, 1e9, 8e9))


def test_load_from_other_processes_is_told_first_and_only_then():
    disturbed = CpuUtilization(0.4, 0.48, 2.0, 2.0, disturbed=True)
    lines = screen(cpu=disturbed).splitlines()

    assert lines[2] == "other processes took 48.0 % of the cores: speed, times and the verdict may differ without them"
    assert "other processes" not in screen(cpu=replace(disturbed, disturbed=False))


def test_a_device_busier_than_a_clean_step_is_long_is_marked():
    said = row("device busy", utilization=Utilization(1.031, 0.9, FLOP, FLOP, 1e9, 8e9))

    assert said == "103.1 % of a clean step (! kernels took longer while watched); 90.0 % in the kernels window"


def test_the_reasons_of_idling_are_listed_longest_first_and_what_is_not_reported_is_left_out():
    idle = replace(TIME.idle, data_wait=0.02, launching=0.18, communication=0.0)

    assert row("idle", step_time=replace(TIME, idle=idle)) == "launching 18.0 %, waiting for data 2.0 % of the step"
    assert "\nidle" not in screen(step_time=replace(TIME, idle=replace(idle, data_wait=0.0, launching=0.0)))


def test_a_bar_is_as_long_as_the_phases_share_and_filled_as_far_as_it_is_busy():
    lines = {line.split()[0]: line for line in screen().splitlines() if "█" in line or "░" in line}

    assert [lines[name].count("█") + lines[name].count("░") for name in ("data", "forward", "backward")] == [4, 12, 20]
    assert [lines[name].count("█") for name in ("data", "forward", "backward")] == [0, 10, 18]
    assert "100.00 ms  50.0 %" in lines["backward"]
    assert "recompute" not in lines


def test_memory_is_one_line_largest_first():
    assert row("memory").startswith("240 B at the peak: weights 41.7 %, weight gradients 41.7 %, feature maps 16.7 %")


def test_weights_that_several_processes_share_are_on_the_first_screen():
    memory = full_summary().memory
    assert memory is not None
    shared = replace(memory, outside_allocator_max={Role.WEIGHT: 2048})

    assert row("elsewhere", memory=shared).startswith("weight 2.00 KiB outside the allocator: shared with other")
    assert "elsewhere" not in screen()


def test_a_sample_s_flops_stand_beside_the_parameters():
    assert "25 parameters · 1.00 GFLOP a sample · 8.00 GFLOP a step\n" in screen(160)


def test_flops_are_at_least_so_many_where_some_products_have_no_count():
    summary = measured(full_summary(**FACTS))
    summary.recording.missing[RemarkOn.KERNEL_COUNTS] = "3 of 4 products could not be followed to what they multiply"

    text = terminal.render(summary, width=160)

    assert "25 parameters · at least 1.00 GFLOP a sample · at least 8.00 GFLOP a step\n" in text


def test_products_of_the_update_stand_beside_those_of_a_sample():
    muon = Utilization(0.79, 0.8, FLOP, FLOP, 1e9, 8e9, update_flops_per_step=2e6)
    assert "1.00 GFLOP a sample · 8.00 GFLOP a step · 2.00 MFLOP a step in the update" in screen(160, utilization=muon)


def test_clean_windows_that_disagree_are_reported_with_the_rate_of_each():
    throughput = full_summary().throughput
    assert throughput is not None
    each = tuple(replace(throughput.rate, per_s=rate) for rate in (80.0, 60.0, 12345.6))

    said = row("drifted", throughput=replace(throughput, windows=each, drifted=True))

    assert said == "the clean windows disagree: 80, 60, 12,346 samples/s"


def test_a_loop_that_never_settled_is_reported_before_its_figures():
    summary = full_summary(**FACTS)
    run = replace(summary.recording.run, settled=False)
    text = terminal.render(replace(summary, recording=replace(summary.recording, run=run)), width=100)

    assert "warm-up" in text.partition("Memory of")[0]
    assert text.count("NEVER SETTLED") == 2  # with the figures, and with the method


@pytest.mark.parametrize("width", [80, 100, 120])
def test_one_reason_for_many_figures_is_one_line(width: int):
    summary = full_summary()
    reason = "this run has no kernels window"
    missing = dict.fromkeys(("verdict", "time", "utilization.device_busy", "utilization.mfu", "kernels"), reason)
    text = terminal.render(
        replace(summary, missing=missing, utilization=None, step_time=None, verdict=None, low_utilization=None),
        width=width,
    )

    assert text.count(reason) == 1
    assert f"not measured: {reason} (what binds it, device busy," in text


def test_how_many_kernels_a_step_has_and_how_long_one_takes_are_shown():
    assert row("operators") == "1,600 a step, 100.00 µs on average"


def test_a_switch_is_beside_the_facts_of_the_run_and_a_models_other_options_are_not():
    options = {"variant": "v1.5", "channels_last": "on"}
    head = terminal.render(full_summary(**FACTS, options=options), width=160).splitlines()[1]

    assert head.endswith(" · --channels-last on")
    assert "v1.5" not in head
