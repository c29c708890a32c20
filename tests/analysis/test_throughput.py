"""Throughput, drift, overhead and CPU utilization from blocks of steps."""

import pytest
from make import run, timed_window
from plain_rows import table

from tbdprof.analysis.time import throughput
from tbdprof.analysis.time.given import given
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Strings
from tbdprof.results.found import Found
from tbdprof.results.time import Throughput


def measured(recording: Recording) -> Found[Throughput | None]:
    return throughput.throughput(recording, given(recording))


def test_throughput_is_units_over_block_time_of_the_clean_windows_alone():
    windows = [
        timed_window(0, "warmup", [9.0]),
        timed_window(1, "clean", [1.0, 1.0], units=4, steps_per_block=2),
        timed_window(2, "memory", [7.0]),
        timed_window(3, "clean", [2.0, 2.0], units=4, steps_per_block=2),
    ]

    result = measured(Recording(run(unit="images"), windows)).value

    assert result is not None
    assert result.rate.per_s == pytest.approx(32 / 6)
    assert result.step_seconds == pytest.approx(6 / 8)
    assert [rate.per_s for rate in result.windows] == pytest.approx([8.0, 4.0])
    assert result.unit == "images"


def test_the_interval_holds_the_rate_and_is_the_same_every_time():
    recording = Recording(run(), [timed_window(0, "clean", [1.0, 1.1, 0.9, 1.05, 1.2])])

    first, second = (measured(recording).value for _ in range(2))

    assert first is not None
    assert first == second
    assert first.rate.interval is not None
    low, high = first.rate.interval
    assert 1 / 1.2 <= low < first.rate.per_s < high <= 1 / 0.9


def test_one_block_gives_a_rate_without_an_interval():
    result = measured(Recording(run(), [timed_window(0, "clean", [2.0])])).value

    assert result is not None
    assert result.rate == throughput.Rate(0.5, None)
    assert result.drifted is None


@pytest.mark.parametrize(("later", "drifted"), [([1.3, 1.31, 1.29], True), ([1.0, 1.02, 0.98], False)])
def test_clean_windows_that_disagree_have_drifted(later, drifted):
    windows = [timed_window(0, "clean", [1.0, 1.01, 0.99]), timed_window(2, "clean", later)]

    result = measured(Recording(run(), windows)).value

    assert result is not None
    assert result.drifted is drifted


def test_without_a_clean_block_there_is_no_throughput():
    assert measured(Recording(run(), [timed_window(0, "warmup", [1.0])])).value is None


def test_samples_are_counted_by_batch_where_the_unit_is_another():
    recording = Recording(run(unit="tokens", batch_size=8), [timed_window(0, "clean", [2.0, 2.0], units=100)])

    result = measured(recording).value

    assert result is not None
    assert result.samples_per_unit(recording.run) == pytest.approx(0.08)
    assert result.rate.per_s * 0.08 == pytest.approx(4.0)


def test_a_windows_cost_is_its_step_time_over_its_clean_neighbours_without_its_first_step():
    windows = [
        timed_window(0, "clean", [1.0, 1.0]),
        timed_window(1, "memory", [50.0, 1.5, 1.5]),
        timed_window(2, "clean", [2.0, 2.0]),
        timed_window(4, "clean", [99.0, 99.0]),
    ]

    cost = throughput.overhead(Recording(run(), windows), "memory").value

    assert cost is not None
    assert cost.ratio == pytest.approx(1.0)
    assert cost.interval is not None
    assert cost.interval[0] < 1 < cost.interval[1]


@pytest.mark.parametrize(("interval", "wide"), [((0.9, 1.2), False), ((0.3, 30.5), True), (None, False)])
def test_an_interval_over_more_than_a_factor_of_two_is_wide(interval, wide):
    assert throughput.Overhead(1.0, interval).is_wide is wide


def cpu_window(samples: list[tuple[str, float, float]], strings: Strings) -> Window:
    rows: list[tuple[object, ...]] = [(strings.add(name), -1, round(at * 1e9), value) for name, at, value in samples]
    return Window(0, "clean", "complete", {"sample": table("sample", rows)})


def test_cpu_utilization_is_equation_3_over_the_usable_cores():
    strings = Strings()
    process, machine = throughput.PROCESS_CPU, throughput.MACHINE_CPU
    window = cpu_window([(process, 0, 10), (machine, 0, 50), (process, 4, 16), (machine, 4, 57)], strings)

    result = throughput.cpu_utilization(Recording(run(cores=2.0), [window], strings)).value

    assert result == throughput.CpuUtilization(6 / 8, others=1 / 8, cores=2.0, affinity_cores=2.0, disturbed=True)


def test_ranks_that_train_together_are_no_other_processes():
    strings = Strings()
    process, machine, ranks = throughput.PROCESS_CPU, throughput.MACHINE_CPU, throughput.RANKS_CPU
    ends = [(process, 0, 0), (machine, 0, 0), (ranks, 0, 5), (process, 4, 3), (machine, 4, 8), (ranks, 4, 9)]
    window = cpu_window(ends, strings)

    found = throughput.cpu_utilization(Recording(run(cores=2.0, rank=0, world_size=2), [window], strings)).value

    assert found == throughput.CpuUtilization(3 / 8, 1 / 8, 2.0, 2.0, disturbed=True, ranks=4 / 8)


def test_other_load_is_of_the_cores_without_the_quota_and_so_never_above_one():
    strings = Strings()
    process, machine = throughput.PROCESS_CPU, throughput.MACHINE_CPU
    window = cpu_window([(process, 0, 0), (machine, 0, 0), (process, 4, 4), (machine, 4, 32)], strings)

    result = throughput.cpu_utilization(Recording(run(cores=1.0, affinity_cores=8.0), [window], strings)).value

    assert result == throughput.CpuUtilization(1.0, others=28 / 32, cores=1.0, affinity_cores=8.0, disturbed=True)


@pytest.mark.parametrize(
    ("seconds", "others", "disturbed"),
    [(4.0, 0.8, False), (4.0, 0.9, True), (0.05, 0.02, False), (0.05, 0.04, True)],  # of 2 cores; a tick is 0.01 s
)
def test_load_that_ticks_of_the_clock_can_feign_is_not_notable(seconds: float, others: float, disturbed: bool):
    strings = Strings()
    process, machine = throughput.PROCESS_CPU, throughput.MACHINE_CPU
    ends = [(process, seconds, 0), (machine, seconds, others)]
    window = cpu_window([(process, 0, 0), (machine, 0, 0), *ends], strings)

    result = throughput.cpu_utilization(Recording(run(cores=2.0), [window], strings)).value

    assert result is not None
    assert result.disturbed is disturbed


def test_without_samples_there_is_no_cpu_utilization():
    assert throughput.cpu_utilization(Recording(run(cores=2.0), [timed_window(0, "clean", [1.0])])).value is None


def test_where_samples_are_counted_a_batch_size_changes_nothing():
    recording = Recording(run(unit="samples", batch_size=16), [timed_window(0, "clean", [1.0, 1.0], units=32)])

    result = measured(recording).value

    assert result is not None
    assert result.samples_per_unit(recording.run) == 1.0
