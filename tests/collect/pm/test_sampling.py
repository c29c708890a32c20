"""What is sampled of a chip, on which clock, and what is lost, with a fake in CUPTI's place."""

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_pm import INTERVAL_NS, FakeChip, FakeSampler

from tbdprof.collect.pm import CuptiError, Decoded, Wanted, metrics, sidecar, statuses
from tbdprof.collect.pm.losses import Kept, Losses, believed, joined
from tbdprof.collect.pm.sampling import Sampling
from tbdprof.facts.counters import (
    PM_BUSY,
    PM_CLOCK,
    PM_DRAM,
    PM_FP32,
    PM_FP32_LITE,
    PM_SM_ACTIVE,
    PM_TENSOR,
    PM_WARPS,
)

EVERY = [PM_BUSY, PM_FP32, PM_TENSOR, PM_SM_ACTIVE, PM_FP32_LITE, PM_DRAM, PM_CLOCK, PM_WARPS]


def sampling(device: FakeChip) -> Sampling:
    return Sampling(partial(FakeSampler, device), INTERVAL_NS)


def chosen(device: FakeChip) -> dict[str, str]:
    return {metric.counter: name for metric, name in sampling(device).chosen}


def piece(start: list[int], end: list[int]) -> Decoded:
    return Decoded(np.array(start), np.array(end), np.arange(len(start), dtype=float)[:, None])


def sorted_out(pieces: list[Decoded]) -> tuple[Kept, Losses]:
    lost = Losses()
    return believed(joined(pieces, 1), lost), lost


def test_a_hopper_samples_the_counters_of_its_set():
    found = chosen(FakeChip())

    assert list(found) == EVERY
    assert found[PM_FP32] == ("TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime.avg.pct_of_peak_sustained_elapsed")


def test_a_blackwell_takes_the_second_name_where_it_has_not_the_first():
    found = chosen(FakeChip("GB100", has=lambda name: "inst_executed_pipe_fma_" not in name and "dramc" not in name))

    assert found[PM_FP32].startswith("TPC.TriageCompute.sm__pipe_fma_cycles_active_realtime.")
    assert found[PM_DRAM].startswith("FBSP.TriageCompute.dram__throughput.")


def test_what_needs_a_second_pass_is_left_out_and_what_matters_stays():
    assert list(chosen(FakeChip(room=3))) == EVERY[:3]


def test_a_turing_is_sampled_by_cycles_and_without_what_takes_two_passes():
    device = FakeChip("TU102", has=lambda name: "fmalite" not in name)

    assert PM_FP32_LITE not in chosen(device)
    assert device.calls[:2] == ["open", "configure None False"]


def test_where_a_set_is_refused_its_name_is_reported_and_then_plain_names_are_tried():
    device = FakeChip(refuses=lambda wanted: statuses.NOT_SUPPORTED if "Triage" in wanted.metrics[0] else 0)

    found = chosen(device)

    assert found[PM_FP32] == "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed"
    assert [call for call in device.calls if call.startswith("configure")] == [
        "configure None True",
        "configure None False",
        "configure TriageCompute True",
        "configure TriageCompute False",
        "configure None True",
    ]


def test_a_device_that_refuses_all_gives_the_last_reason():
    with pytest.raises(CuptiError) as refused:
        sampling(FakeChip(refuses=lambda wanted: statuses.HARDWARE_BUSY))

    assert statuses.sentence(refused.value.call, refused.value.status) == (
        "another profiler (Nsight, DCGM) holds the device's counters [configure: CUPTI_ERROR_HARDWARE_BUSY (26)]"
    )


def test_a_cupti_that_cannot_read_metrics_at_all_gives_that_reason():
    device = FakeChip(has=lambda name: False, no_metric=statuses.NOT_INITIALIZED)

    with pytest.raises(CuptiError) as refused:
        sampling(device)

    assert refused.value.status == statuses.NOT_INITIALIZED
    with pytest.raises(CuptiError, match="INVALID_METRIC_NAME"):
        sampling(FakeChip(has=lambda name: False))


def test_percent_become_fractions_and_other_units_stay():
    one = sampling(FakeChip())
    one.start()
    samples = one.finish()

    assert samples.columns[PM_FP32][5] == pytest.approx(0.05)
    assert samples.columns[PM_CLOCK][5] == 5.0
    assert samples.interval_ns == pytest.approx(INTERVAL_NS, rel=1e-3)  # two clocks are read some microseconds apart
    assert samples.lost.samples == 0


@pytest.mark.parametrize(("other", "named"), [(1_000_000_000_000, "cupti"), (None, "realtime")])
def test_times_are_converted_from_the_clock_they_are_of(other: int | None, named: str):
    """`None`: the samples are of the wall clock, though CUPTI reports the time of another one."""
    clock = time.time_ns if other is None else (lambda: time.monotonic_ns() + other)
    device = FakeChip(other_clock=clock)
    one = sampling(device)
    if other is None:
        one.sampler.timestamp = lambda: 5  # type: ignore[method-assign]
    begun = time.monotonic_ns()
    one.start()
    samples = one.finish()

    assert samples.clock == named
    assert begun <= samples.start_ns[0] + 1_000_000
    assert samples.start_ns[0] <= time.monotonic_ns()
    assert np.diff(samples.start_ns).tolist() == pytest.approx([INTERVAL_NS] * 9, abs=2000)


def test_a_cupti_that_does_not_report_the_time_leaves_the_other_clocks():
    device = FakeChip()
    one = sampling(device)

    def refusing() -> int:
        raise CuptiError("get_timestamp", statuses.UNKNOWN)

    one.sampler.timestamp = refusing  # type: ignore[method-assign]
    one.start()

    assert one.finish().clock == "monotonic"


def test_times_of_no_known_clock_are_refused():
    device = FakeChip()
    one = sampling(device)
    device.pieces = [piece([10**15, 10**15 + INTERVAL_NS], [10**15 + INTERVAL_NS, 10**15 + 2 * INTERVAL_NS])]
    device.pieces = [Decoded(device.pieces[0].start, device.pieces[0].end, np.zeros((2, 8)))]
    one.start()

    with pytest.raises(CuptiError, match="of no clock that is known"):
        one.finish()


def test_an_overflow_begins_anew_and_is_counted():
    device = FakeChip()
    one = sampling(device)
    one.start()
    device.overflows = 1
    one.poll()

    assert device.calls[-4:] == ["close", "open", "configure None True", "start"]
    assert one.finish().lost.overflows == 1


def test_an_overflow_at_the_end_costs_what_came_after_it_alone():
    device = FakeChip()
    one = sampling(device)
    one.start()
    one.poll()
    device.overflows = 1
    samples = one.finish()

    assert len(samples.start_ns) == 10
    assert samples.lost.overflows == 1


def test_overflows_without_end_end_the_sampling():
    device = FakeChip()
    one = sampling(device)
    one.start()
    device.overflows = 100

    for _ in range(5):
        one.poll()
    with pytest.raises(CuptiError, match="again and again"):
        one.poll()


def test_samples_without_a_time_without_a_length_and_stretched_ones_are_left_out():
    kept, lost = sorted_out([piece([0, 100, 200, 300, 300], [50, 200, 300, 300, 400]), piece([400, 800], [800, 900])])

    assert kept.start.tolist() == [100, 200, 300, 800]
    assert (lost.broken, lost.stretched, lost.gaps, lost.missing) == (2, 1, 1, 4)


def test_a_sample_that_overlaps_the_one_before_is_left_out():
    kept, lost = sorted_out([piece([100, 150, 200], [200, 250, 300])])

    assert kept.start.tolist() == [100]
    assert lost.broken == 2


def test_samples_in_a_row_lose_nothing_and_no_samples_lose_nothing():
    assert sorted_out([piece([100, 200], [200, 300])])[1] == Losses()
    assert sorted_out([])[1] == Losses()


def conversation(device: FakeChip, folder: Path, *commands: str) -> list[dict[str, Any]]:
    """Return the answers to some commands, which come by a pipe."""
    reads, writes = os.pipe()
    os.write(writes, "".join(f"{each}\n" for each in commands).encode())
    os.close(writes)
    answers: list[dict[str, Any]] = []
    sidecar.serve(partial(FakeSampler, device), INTERVAL_NS, folder, answers.append, sidecar.lines_of(reads))
    os.close(reads)
    return json.loads(json.dumps(answers))  # as it goes over the pipe


def test_the_process_answers_each_command_and_writes_what_it_sampled(tmp_path: Path):
    device = FakeChip()
    ready, started, stopped = conversation(device, tmp_path, "start", "stop", "quit")

    assert (ready["state"], ready["chip"], list(ready["metrics"])) == ("ready", "GH100", EVERY)
    assert started == {"state": "started"}
    assert (stopped["state"], stopped["samples"], stopped["lost"]) == ("stopped", 10, 0)
    with np.load(tmp_path / stopped["file"]) as stored:
        assert set(stored.files) == {"start_ns", "end_ns", *EVERY}
    assert device.calls[-1] == "close"


def test_the_process_ends_with_its_input_and_gives_the_device_back(tmp_path: Path):
    device = FakeChip()

    assert [each["state"] for each in conversation(device, tmp_path, "start")] == ["ready", "started"]
    assert device.calls[-1] == "close"


def test_the_reason_why_nothing_is_sampled_is_reported_though_closing_fails_too(tmp_path: Path):
    device = FakeChip(refuses=lambda wanted: statuses.INSUFFICIENT_PRIVILEGES, closing=statuses.UNKNOWN)

    assert [answer["status"] for answer in conversation(device, tmp_path, "start")] == [
        statuses.INSUFFICIENT_PRIVILEGES
    ]


def test_a_refusal_is_reported_with_its_number(tmp_path: Path):
    device = FakeChip(refuses=lambda wanted: statuses.INSUFFICIENT_PRIVILEGES)

    assert conversation(device, tmp_path, "start") == [
        {"state": "error", "call": "configure", "status": 35, "text": ""}
    ]


def test_a_chip_of_each_generation_has_names_and_intervals():
    for chip in ("TU102", "GA100", "GA102", "AD102", "GH100", "GB100", "GB202", "XY999"):
        assert {PM_BUSY, PM_FP32, PM_TENSOR} <= {each.counter for each in metrics.families(chip)[0].metrics}
    assert metrics.intervals("GA100", 100_000) == {False: 120_000}
    assert metrics.intervals("GH100", 100_000) == {True: 100_000, False: 120_000}


def test_there_is_room_for_four_polls_of_samples():
    device, seen = FakeChip(), list[Wanted]()
    device.refuses = lambda wanted: seen.append(wanted) or 0  # type: ignore[func-returns-value]
    sampling(device)

    assert (seen[0].interval, seen[0].slots, seen[0].buffer_bytes) == (100_000, 4064, 2 * 4064 * 16_384)
