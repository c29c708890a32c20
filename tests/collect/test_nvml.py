"""The driver's account of a device, asked through a fake of its library at the times of a fake clock."""

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from fake_nvml import (
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    NOT_SUPPORTED,
    STARTED_NS,
    UNKNOWN,
    UNSIGNED,
    WALL_OFFSET_NS,
    FakeCuda,
    FakeNvml,
)
from fakes import FakeClock, FakeHook
from make import run

from tbdprof.analysis.summary import summarize
from tbdprof.cli.main import cli
from tbdprof.collect.gpu import cuda_driver
from tbdprof.collect.gpu.nvml import NvmlSampler, Reader, since_start_ns
from tbdprof.collect.gpu.nvml_card import VALUES, Card, open_card
from tbdprof.collect.gpu.nvml_stretches import Gpm
from tbdprof.errors import UnavailableError, UsageError
from tbdprof.facts import counters
from tbdprof.facts.records import Strings
from tbdprof.hooks import Facts
from tbdprof.launch import choose_instruments, suite_run
from tbdprof.launch.choose_instruments import instruments_for
from tbdprof.launch.request import RunRequest
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.plan import WITH_SAMPLED, Plan
from tbdprof.loop.profiler import LoopProfiler

S = 1_000_000_000


def reader(nvml: FakeNvml, cuda: FakeCuda | None = None) -> Reader:
    return Reader(open_card(0, nvml, cuda or FakeCuda()), nvml.clock, nvml.wall, nvml.started)


def drained(
    nvml: FakeNvml, window: str = "clean", seconds: float = 1.0
) -> tuple[dict[str, list[tuple]], dict[str, str]]:
    """Return the rows of a window by counter as (time in s, value, start in s), and what is missing."""
    read = reader(nvml)
    read.begin(window)
    for _ in range(round(seconds * 10)):
        nvml.clock.sleep(0.1)
        read.tick()
    read.tick(last=True)
    rows, missing = read.take()
    found: dict[str, list[tuple]] = {}
    for counter, at, value, since in rows:
        found.setdefault(counter, []).append((at / S, value, since if since < 0 else since / S))
    return found, missing


def values(nvml: FakeNvml, counter: str, **more: object) -> list[float]:
    return [value for _, value, _ in drained(nvml, **more)[0].get(counter, [])]  # type: ignore[arg-type]


def test_a_device_is_matched_by_its_identifier_and_not_by_its_number():
    card = open_card(0, FakeNvml(), FakeCuda())

    assert (card.instance, card.whole, card.gpu_instance) == ("card", "card", None)


def test_the_cuda_driver_reports_what_a_device_is_known_by():
    found = cuda_driver.identity(0, FakeCuda())

    assert found == cuda_driver.Identity("00010203-0405-0607-0809-0a0b0c0d0e0f", "0000:1B:00.0")
    assert cuda_driver.identity(0, FakeCuda(old=True, bus_id=False)) == cuda_driver.Identity(found.uuid, None)
    with pytest.raises(UnavailableError, match="error 101"):
        cuda_driver.identity(2, FakeCuda())


def test_an_instance_of_a_divided_card_is_distinguished_from_the_card():
    card = open_card(0, FakeNvml(instance=7), FakeCuda())

    assert (card.instance, card.whole, card.gpu_instance) == ("instance", "card", 7)


def test_where_no_identifier_is_known_the_slot_identifies_the_card():
    nvml = FakeNvml(refuses={"nvmlDeviceGetHandleByUUID": NOT_SUPPORTED})

    assert open_card(1, nvml, FakeCuda()).whole == "card"


@pytest.mark.parametrize(
    ("nvml", "bus_id", "reason"),
    [
        (FakeNvml(refuses={"nvmlInit": LIBRARY_NOT_FOUND}), True, "does not answer: NVML Shared Library Not Found"),
        (FakeNvml(refuses={"nvmlInit": NO_PERMISSION}), True, "does not answer: Insufficient Permissions"),
        (FakeNvml(refuses={"nvmlDeviceGetHandleByUUID": UNKNOWN}), False, "knows no device 00010203-"),
        (
            FakeNvml(refuses={"nvmlDeviceGetHandleByUUID": 6, "nvmlDeviceGetHandleByPciBusId": NO_PERMISSION}),
            True,
            "does not report on this device: Insufficient Permissions",
        ),
        (FakeNvml(instance=7, refuses={"nvmlDeviceGetHandleByUUID": 6}), True, "does not report which instance"),
    ],
)
def test_a_device_that_is_not_had_is_unavailable_with_the_reason_and_nothing_stays_open(
    nvml: FakeNvml, bus_id: bool, reason: str
):
    with pytest.raises(UnavailableError, match=reason):
        open_card(0, nvml, FakeCuda(bus_id=bus_id))

    assert nvml.opened == nvml.shut


def test_energy_power_clocks_and_reasons_are_read_at_each_tick():
    found, missing = drained(FakeNvml(watts=lambda s: 400 + 100 * s, clock_mhz=lambda s: 1500 + s, reasons=lambda s: 4))

    assert missing == {"memory.process_used": missing["memory.process_used"]}
    assert len(found[counters.ENERGY]) == 12
    assert found[counters.ENERGY][-1][1] - found[counters.ENERGY][0][1] == pytest.approx(450)  # 400 to 500 W for 1 s
    assert found[counters.POWER][3] == (0.3, 430.0, -1)
    assert found[counters.SM_CLOCK][-1] == (1.0, 1501e6, -1)
    assert {value for _, value, _ in found[counters.MEMORY_CLOCK]} == {3201e6}
    assert {value for _, value, _ in found[counters.THROTTLE]} == {4.0}


def test_what_changes_slowly_is_read_at_the_edges_and_once_a_second_but_memory_often_where_that_is_watched():
    assert [at for at, _, _ in drained(FakeNvml(), seconds=2.5)[0][counters.DEVICE_USED]] == [0.0, 1.0, 2.0, 2.5]
    found = drained(FakeNvml(), "memory", seconds=2.5)[0]
    assert len(found[counters.DEVICE_USED]) == 27
    assert len(found[counters.TEMPERATURE]) == 4
    assert found[counters.SM_CLOCK_MAX][0][1] == 1980e6


def test_power_of_the_last_second_says_since_when_and_on_a_card_that_reports_instants_it_does_not():
    refuses = {"nvmlDeviceGetFieldValues": NOT_SUPPORTED}

    assert drained(FakeNvml(refuses=refuses))[0][counters.POWER][-1] == (1.0, 500.0, 0.0)
    assert drained(FakeNvml(refuses=refuses, capability=(8, 0)))[0][counters.POWER][-1] == (1.0, 500.0, -1)
    assert drained(FakeNvml(lacks=frozenset({"nvmlDeviceGetFieldValues"})))[0][counters.POWER][-1] == (1.0, 500.0, 0.0)


def test_the_drivers_samples_of_busy_keep_their_own_times():
    nvml = FakeNvml(busy=lambda s: 0.3 if s <= 0.4001 else 0.9)
    nvml.clock.now_ns = 50_000_000
    found = drained(nvml, seconds=0.75)[0][counters.DRIVER_BUSY]  # at 0.8 s: periods end at 0.2, 0.4, 0.6, 0.8 s

    assert [(round(start, 6), round(at, 6), value) for at, value, start in found] == [
        (0.0, 0.2, 0.3), (0.2, 0.4, 0.3), (0.4, 0.6, 0.9), (0.6, 0.8, 0.9),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "nvml",
    [
        FakeNvml(refuses={"nvmlDeviceGetSamples": NOT_SUPPORTED}),
        FakeNvml(lacks=frozenset({"nvmlDeviceGetSamples"})),
    ],
)
def test_without_the_drivers_samples_the_figure_of_its_last_period_is_asked(nvml: FakeNvml):
    assert drained(nvml)[0][counters.DRIVER_BUSY] == [(0.0, 0.5, -1), (1.0, 0.5, -1), (1.0, 0.5, -1)]


def test_times_since_the_machine_was_started_are_known_as_such():
    nvml = FakeNvml(busy=lambda s: 0.3 if s <= 0.4001 else 0.9)
    nvml.clock.now_ns = 50_000_000
    nvml.wall_error_us = (STARTED_NS - WALL_OFFSET_NS) // 1000
    found = drained(nvml, seconds=0.75)[0][counters.DRIVER_BUSY]

    assert [(round(start, 6), round(at, 6), value) for at, value, start in found] == [
        (0.0, 0.2, 0.3), (0.2, 0.4, 0.3), (0.4, 0.6, 0.9), (0.6, 0.8, 0.9),
    ]  # fmt: skip


def test_the_time_since_the_start_is_that_of_this_machine():
    assert since_start_ns() >= time.monotonic_ns() - 1_000_000


def test_times_that_are_not_of_this_machines_clock_are_not_believed():
    nvml = FakeNvml()
    nvml.wall_error_us = 3600 * 1_000_000

    assert {start for _, _, start in drained(nvml)[0][counters.DRIVER_BUSY]} == {-1}


def test_gpm_is_sampled_at_most_every_200_ms_and_its_figures_are_of_the_time_between():
    found = drained(FakeNvml(), seconds=0.7)[0]

    assert [(round(start, 3), round(at, 3)) for at, _, start in found[counters.GPM_FP32]] == [
        (0.0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.7),
    ]  # fmt: skip
    figures = {name: found[name][0][1] for name in found if name.startswith("gpm")}
    assert figures == {
        counters.GPM_BUSY: 0.6, counters.GPM_SM_ACTIVE: 0.5, counters.GPM_OCCUPANCY: 0.4, counters.GPM_TENSOR: 0.3,
        counters.GPM_DRAM: 0.2, counters.GPM_FP32: 0.1,
    }  # fmt: skip
    assert 0.0 not in values(FakeNvml(), counters.GPM_FP32, seconds=0.65)


def test_gpm_is_not_read_beside_cuptis_own_sampling_of_the_hardware():
    found, missing = drained(FakeNvml(), "sampled")

    assert not any(name.startswith("gpm") for name in found)
    assert "device.gpm" not in missing
    assert counters.SM_CLOCK in found


def test_an_older_driver_is_asked_for_the_temperature_by_the_older_call():
    assert values(FakeNvml(), counters.TEMPERATURE)[0] == 62
    assert values(FakeNvml(refuses={"nvmlDeviceGetTemperatureV": 13}), counters.TEMPERATURE)[0] == 61


def test_the_fake_has_the_names_and_the_numbers_of_pynvml():
    import pynvml

    names = {name for name in dir(FakeNvml) if name.startswith(("nvml", "NVML_", "c_nvml"))}
    asked = {name for name in names if not name.startswith("NVML_") and name != "nvmlMemory_v2"}

    assert len(asked) > 25
    assert {name for name in names if not hasattr(pynvml, name)} == set()
    assert {
        name for name in names - asked if getattr(pynvml, name) != object.__getattribute__(FakeNvml(), name)
    } == set()
    assert pynvml.NVML_VALUE_TYPE_UNSIGNED_INT == UNSIGNED
    assert [field for field, _ in pynvml.c_nvmlValue_t._fields_] == list(VALUES)


def test_what_is_filled_in_for_gpm_fits_pynvmls_own_structures():
    import pynvml

    nvml = SimpleNamespace(**vars(pynvml))
    filled = []

    def metrics_get(asked: object) -> None:
        filled.append([asked.metrics[place].metricId for place in range(asked.numMetrics)])
        for place in range(asked.numMetrics):
            asked.metrics[place].value = 10.0 * place
            asked.metrics[place].nvmlReturn = 3 if place == 1 else 0

    nvml.nvmlGpmQueryDeviceSupport = lambda handle: pynvml.c_nvmlGpmSupport_t(1, 1)
    nvml.nvmlGpmSampleAlloc = lambda: pynvml.c_nvmlGpmSample_t()
    nvml.nvmlGpmSampleGet = lambda handle, buffer: buffer
    nvml.nvmlGpmMetricsGet = metrics_get
    clock = FakeClock()
    gpm = Gpm(Card(nvml, "card", "card"), clock)
    assert gpm.read() == []
    clock.sleep(0.2)
    rows = {counter: value for counter, _, value, _ in gpm.read()}

    assert filled == [[1, 2, 3, 5, 10, 12]]
    assert rows == {
        counters.GPM_BUSY: 0.0, counters.GPM_OCCUPANCY: 0.2, counters.GPM_TENSOR: 0.3, counters.GPM_DRAM: 0.4,
        counters.GPM_FP32: 0.5,
    }  # fmt: skip


def test_a_gpm_figure_the_driver_does_not_have_is_left_out():
    found = drained(FakeNvml(gpm={1: 60.0, 12: float("nan")}))[0]

    assert counters.GPM_BUSY in found
    assert not {counters.GPM_FP32, counters.GPM_TENSOR} & found.keys()


def test_a_driver_that_refuses_every_gpm_figure_is_a_reason():
    found, missing = drained(FakeNvml(gpm={}))

    assert not any(name.startswith("gpm") for name in found)
    assert missing["device.gpm"] == "the driver gives no GPM figures: Not Supported"
    assert drained(FakeNvml(gpm=dict.fromkeys((1, 2, 3, 5, 10, 12), float("nan"))))[1]["device.gpm"].endswith(
        "no numbers"
    )


def test_an_instance_has_its_own_gpm_figures_and_memory_but_no_energy():
    found, missing = drained(FakeNvml(instance=7))

    assert found[counters.GPM_FP32][0][1] == 0.1
    assert found[counters.DEVICE_USED][0][1] == 300
    assert not {counters.ENERGY, counters.POWER, counters.DRIVER_BUSY} & found.keys()
    assert missing["energy.counter"] == missing["energy.power"]
    assert "only for the whole card" in missing["energy.power"]
    assert missing["device.driver_busy"] == "the driver refuses: Not Supported"


def test_memory_is_reported_with_what_the_driver_keeps_apart_where_it_says_so():
    found = drained(FakeNvml())[0]
    older = drained(FakeNvml(lacks=frozenset({"nvmlDeviceGetMemoryInfo"})))
    without = FakeNvml()
    without.__class__ = type("Old", (FakeNvml,), {"nvmlMemory_v2": property(lambda self: self.missing)})

    names = (counters.DEVICE_TOTAL, counters.DEVICE_USED, counters.DEVICE_RESERVED)
    assert [found[name][0][1] for name in names] == [1000, 300, 50]
    assert "nvidia-ml-py cannot ask this driver" in older[1]["memory.device_used"]
    found = drained(without)[0]
    assert (found[counters.DEVICE_USED][0][1], counters.DEVICE_RESERVED in found) == (350, False)


def test_memory_by_process_is_reported_where_this_process_is_listed():
    found, missing = drained(FakeNvml(processes={os.getpid(): 100, 1: 70, 2: 30}))

    assert found[counters.PROCESS_USED][0][1] == 100
    assert found[counters.OTHERS_USED][0][1] == 100
    assert missing == {}


@pytest.mark.parametrize(
    ("processes", "reason"),
    [
        ({1: 70, 2: 30}, "lists 2 processes on the device, and none under this one's number"),
        ({os.getpid(): None}, "does not report how much memory each process uses"),
        ({os.getpid(): 100, 1: None}, "does not report how much memory each process uses"),
    ],
)
def test_memory_by_process_is_missing_with_the_reason_and_never_0(processes: Mapping[int, int | None], reason: str):
    found, missing = drained(FakeNvml(processes=processes))

    assert reason in missing["memory.process_used"]
    assert not {counters.PROCESS_USED, counters.OTHERS_USED} & found.keys()


@pytest.mark.parametrize("error", [NOT_SUPPORTED, NO_PERMISSION, UNKNOWN])
@pytest.mark.parametrize(
    ("function", "counter", "name"),
    [
        ("nvmlDeviceGetTotalEnergyConsumption", counters.ENERGY, "energy.counter"),
        ("nvmlDeviceGetPowerUsage", counters.POWER, "energy.power"),
        ("nvmlDeviceGetClockInfo", counters.SM_CLOCK, "device.sm_clock"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", counters.THROTTLE, "device.clock_reasons"),
        ("nvmlDeviceGetTemperature", counters.TEMPERATURE, "device.temperature"),
        ("nvmlDeviceGetMemoryInfo", counters.DEVICE_USED, "memory.device_used"),
        ("nvmlDeviceGetUtilizationRates", counters.DRIVER_BUSY, "device.driver_busy"),
        ("nvmlGpmSampleGet", counters.GPM_FP32, "device.gpm"),
        ("nvmlGpmQueryDeviceSupport", counters.GPM_FP32, "device.gpm"),
    ],
)
def test_a_refusal_leaves_the_rest_and_is_asked_no_more_after_three(function: str, counter: str, name: str, error: int):
    before = {
        "nvmlDeviceGetPowerUsage": "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetCurrentClocksThrottleReasons": "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetUtilizationRates": "nvmlDeviceGetSamples",
        "nvmlDeviceGetTemperature": "nvmlDeviceGetTemperatureV",
    }
    refused = dict.fromkeys(filter(None, [function, before.get(function)]), error)
    nvml = FakeNvml(refuses=refused, processes={os.getpid(): 1})
    found, missing = drained(nvml, seconds=5)

    assert counter not in found
    assert missing[name]
    assert nvml.calls.count(function) <= 6  # two questions read clocks
    assert len(found) > 10


def test_one_refusal_among_answers_is_no_reason():
    nvml = FakeNvml(processes={os.getpid(): 1})
    read = reader(nvml)
    read.begin("clean")
    nvml.refuses |= {"nvmlDeviceGetTemperature": UNKNOWN, "nvmlDeviceGetTemperatureV": UNKNOWN}
    read.tick(last=True)

    assert read.take()[1] == {}


def test_gpm_memory_is_given_back_and_nvml_shut_once():
    nvml = FakeNvml()
    read = reader(nvml)
    read.close()

    assert nvml.freed == ["buffer 0", "buffer 1"]
    assert (nvml.opened, nvml.shut) == (1, 1)


def sampler(nvml: FakeNvml, **more: object) -> NvmlSampler:
    return NvmlSampler(
        0,
        period_s=0.001,
        nvml=nvml,
        cuda=FakeCuda(),
        clock=nvml.clock,
        wall=nvml.wall,
        **more,  # type: ignore[arg-type]
    )


def test_the_sampler_asks_in_a_thread_of_its_own_and_its_rows_name_the_frameworks_device():
    nvml, strings = FakeNvml(), Strings()
    collector = sampler(nvml)
    collector.start("clean")
    running = [thread.name for thread in threading.enumerate()]
    collector.stop()
    collector.stop()
    rows = collector.drain(strings).tables["sample"]

    assert "tbdprof-nvml" in running
    assert "tbdprof-nvml" not in [thread.name for thread in threading.enumerate()]
    assert {strings[int(index)] for index in rows["device"]} == {"cuda:0"}
    assert {strings[int(index)] for index in rows["counter"]} >= {counters.ENERGY, counters.POWER, counters.SM_CLOCK}
    assert len(collector.drain(strings).tables["sample"]) == 0

    collector.start("kernels")
    collector.close()
    collector.close()
    assert (nvml.opened, nvml.shut, len(nvml.freed)) == (1, 1, 2)


def test_a_driver_that_is_not_there_is_reported_once_and_not_asked_again():
    nvml = FakeNvml(refuses={"nvmlInit": LIBRARY_NOT_FOUND})
    collector = sampler(nvml)

    for _ in range(2):
        with pytest.raises(UnavailableError, match="NVML Shared Library Not Found"):
            collector.start("clean")
    collector.stop()
    collector.close()
    assert nvml.calls.count("nvmlInit") == 1


class HangingNvml(FakeNvml):
    """A driver whose calls for the power hang until let go."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False
        self.let_go = threading.Event()

    def nvmlDeviceGetFieldValues(self, handle: str, fields: list[int]) -> list[object]:  # noqa: N802
        if self.hangs:
            self.let_go.wait(10)
        return super().nvmlDeviceGetFieldValues(handle, fields)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_driver_that_hangs_does_not_hold_the_loop(at_once: bool):
    nvml = HangingNvml()
    nvml.hangs = at_once
    collector = sampler(nvml, patience_s=0.05)
    if not at_once:
        collector.start("clean")
        nvml.hangs = True
        collector.stop()
        assert collector.drain(Strings()).missing == {"device": "the NVIDIA driver did not answer within 0.05 s"}
    with pytest.raises(UnavailableError, match="did not answer within"):
        collector.start("clean")
    collector.close()
    assert nvml.shut == 0
    nvml.let_go.set()


def test_where_no_thread_can_be_had_the_device_is_not_sampled(monkeypatch: pytest.MonkeyPatch):
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    collector = sampler(FakeNvml())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(UnavailableError, match="can't start new thread"):
            collector.start("clean")
    collector.stop()
    collector.start("clean")
    collector.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_nobody_foresaw_ends_the_thread_and_does_not_hold_the_loop():
    nvml = FakeNvml()
    nvml.wall = lambda: 1 // 0  # type: ignore[method-assign]
    collector = sampler(nvml, patience_s=10.0)
    begun = time.monotonic()
    collector.start("clean")
    collector.stop()

    assert time.monotonic() - begun < 5
    assert len(collector.drain(Strings()).tables["sample"]) == 0
    collector.close()
    assert nvml.shut == 1


def test_in_a_forked_child_the_sampler_is_inert():
    nvml = FakeNvml()
    collector = sampler(nvml)
    collector.start("clean")
    collector._process = -1  # as a child sees it: the number is another process's
    collector.stop()
    assert collector.drain(Strings()).tables == {}
    with pytest.raises(UnavailableError, match="forked"):
        collector.start("clean")
    reader_before = collector._reader
    collector.close()

    assert nvml.shut == 0
    collector._process, collector._reader = os.getpid(), reader_before
    collector.close()
    assert nvml.shut == 1


class HookOnAGpu(FakeHook):
    """A framework that computes on the first GPU it sees."""

    def facts(self) -> Facts:
        return replace(super().facts(), device="cuda:0")


def profiled(nvml: FakeNvml) -> LoopProfiler:
    """Return a profiler that is done with a run of five windows, each sampled at its edges."""
    collector = sampler(nvml)
    collectors = {"clean": [collector], "memory": [collector], "kernels": [collector]}
    hook = HookOnAGpu(clock=nvml.clock)
    plan = Plan(warmup=2, steps=4, memory_steps=3, kernel_steps=3)
    with LoopProfiler(hook, run(device="cuda:0"), plan, clock=nvml.clock, instruments=Instruments(collectors)) as prof:
        for _ in range(21):
            nvml.clock.sleep(1.0)
            prof.step(8)
    return prof


def test_a_run_on_a_gpu_has_its_energy_and_its_clocks():
    nvml = FakeNvml(processes={os.getpid(): 1})
    summary = summarize(profiled(nvml).recording)

    assert summary.recording.run.complete
    assert summary.energy is not None
    assert summary.energy.source == "counter"
    assert summary.energy.joules_per_unit == pytest.approx(500 / 8)
    assert summary.device is not None
    assert summary.device.of_most("clean") == 1.0
    assert (nvml.opened, nvml.shut, len(nvml.freed)) == (1, 1, 2)


def test_a_run_whose_driver_is_not_there_is_complete_without_the_devices_part():
    summary = summarize(profiled(FakeNvml(refuses={"nvmlInit": LIBRARY_NOT_FOUND})).recording)

    assert summary.recording.run.complete
    assert summary.throughput is not None
    assert (summary.device, summary.energy) == (None, None)
    reason = "the NVIDIA driver does not answer: NVML Shared Library Not Found"
    assert summary.missing["device"] == summary.missing["energy"] == reason


@pytest.mark.parametrize("framework", ["torch", "mxnet", "tensorflow"])
def test_a_gpu_is_sampled_by_one_collector_in_all_windows_and_a_cpu_by_none(
    framework: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(choose_instruments, "available", lambda device: None)
    found = {
        window: [each for each in several if isinstance(each, NvmlSampler)]
        for window, several in instruments_for("cuda:1", framework, power_period_s=0.05).collectors.items()
    }

    assert {window for window, several in found.items() if len(several) == 1} == {*WITH_SAMPLED}
    assert len({id(each) for several in found.values() for each in several}) == 1
    (one,) = found["clean"]
    assert (one._index, one._period_s) == (1, 0.05)
    on_cpu = instruments_for("cpu", framework).collectors
    assert not any(isinstance(each, NvmlSampler) for several in on_cpu.values() for each in several)


def test_the_time_between_two_samples_of_power_is_set_on_the_command_line(monkeypatch: pytest.MonkeyPatch):
    requests: list[RunRequest] = []

    def stop(request: RunRequest, *others: object) -> None:
        requests.append(request)
        raise UsageError("enough")

    monkeypatch.setattr(suite_run, "run", stop)
    for words in ([], ["--power-period", "50"]):
        CliRunner().invoke(cli, ["run", "resnet50", "--framework", "torch", *words])
    refused = CliRunner().invoke(cli, ["run", "resnet50", "--framework", "torch", "--power-period", "1"])

    assert [request.power_period_ms for request in requests] == [100, 50]
    assert refused.exit_code == 2
