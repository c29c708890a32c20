"""What CUPTI records of kernels becomes rows of the recording, and nothing it does reaches the loop."""

import sys
import threading
from collections.abc import Callable

import pytest
from fake_cupti import (
    WALL_NS,
    ActivityKind,
    DriverApiTraceCbid,
    FakeCupti,
    RuntimeApiTraceCbid,
    call,
    kernel,
    moved,
)
from fakes import FakeClock

from tbdprof.collect import Collected
from tbdprof.collect.activity import collector
from tbdprof.collect.activity.collector import ActivityCollector
from tbdprof.collect.activity.records import Records, asking
from tbdprof.errors import UnavailableError
from tbdprof.facts import counters
from tbdprof.facts.records import KernelKind, Strings
from tbdprof.hooks.on_mxnet.thread_numbers import hashed

HERE = threading.get_ident()
LAUNCH, COPY, SET = (
    RuntimeApiTraceCbid.cudaLaunchKernel_v7000,
    RuntimeApiTraceCbid.cudaMemcpyAsync_v3020,
    RuntimeApiTraceCbid.cudaMemsetAsync_v3020,
)


def recorded(
    cupti: FakeCupti, *records: object, number: Callable[[int], int] = int, limit_s: float = 10.0
) -> tuple[Collected, Strings]:
    """Return what a window is in which the library is given some records."""
    collector, strings = (
        ActivityCollector(cupti, clock=cupti.clock, number_of_thread=number, limit_s=limit_s),
        Strings(),
    )
    collector.start("kernels")
    cupti.records += records
    collector.stop()
    return collector.drain(strings), strings


@pytest.fixture
def cupti() -> FakeCupti:
    return FakeCupti(FakeClock())


def samples(collected: Collected, strings: Strings) -> dict[str, float]:
    return {strings[int(row["counter"])]: float(row["value"]) for row in collected.tables["sample"]}


def test_a_kernel_is_reported_with_its_launch_on_this_clock(cupti: FakeCupti) -> None:
    collected, strings = recorded(cupti, call(LAUNCH, 5, 1_000, thread=HERE), kernel("_Z3fooIfEvPT_i", 5, 4_000, 9_000))

    (row,) = collected.tables["kernel"]
    assert strings[row["name"]] == "void foo<float>(float*, int)"
    assert strings[row["device"]] == "cuda:0"
    assert (row["kind"], row["stream"]) == (KernelKind.KERNEL, 7)
    assert (row["launch_ns"], row["start_ns"], row["end_ns"]) == (1_000, 4_000, 9_000)
    assert (row["thread"], row["span"], row["graph"]) == (HERE, -1, -1)
    assert (strings[row["grid"]], strings[row["block"]]) == ("[2, 1, 1]", "[128, 1, 1]")
    assert (row["registers"], row["shared_bytes"], row["moved_bytes"]) == (32, 1536, -1)
    assert collected.missing == {}
    assert samples(collected, strings) == {counters.CLOCK_RESIDUAL: 0.0, counters.LOST: 0.0}


def test_copies_and_sets_report_how_much_they_moved(cupti: FakeCupti) -> None:
    collected, strings = recorded(
        cupti,
        call(COPY, 1, 10),
        moved(ActivityKind.MEMCPY, 1, 20, 30),
        call(SET, 2, 40),
        moved(ActivityKind.MEMSET, 2, 50, 60),
        moved(ActivityKind.MEMCPY2, 1, 70, 80, copy_kind=10, device_id=1),
    )

    rows = collected.tables["kernel"]
    assert [strings[int(name)] for name in rows["name"]] == ["Memcpy HtoD", "Memset", "Memcpy PtoP"]
    assert rows["kind"].tolist() == [KernelKind.COPY, KernelKind.SET, KernelKind.COPY]
    assert rows["moved_bytes"].tolist() == [4096] * 3
    assert strings[int(rows["device"][2])] == "cuda:1"
    assert rows["registers"].tolist() == [-1] * 3


def test_of_a_call_within_a_call_the_outer_one_is_the_launch(cupti: FakeCupti) -> None:
    collected, _ = recorded(
        cupti,
        call(DriverApiTraceCbid.cuLaunchKernel, 5, 1_400, thread=HERE),  # it returns first
        call(LAUNCH, 5, 1_000, thread=HERE),
        kernel("k", 5, 4_000, 9_000),
    )

    assert collected.tables["kernel"]["launch_ns"].tolist() == [1_000]


def test_kernels_of_one_graph_launch_share_it(cupti: FakeCupti) -> None:
    launch = call(RuntimeApiTraceCbid.cudaGraphLaunch_v10000, 5, 1_000, thread=HERE)
    collected, _ = recorded(
        cupti, launch, kernel("a", 5, 2_000, 3_000, graph_id=4), kernel("b", 5, 3_000, 4_000, graph_id=4, stream_id=8)
    )

    rows = collected.tables["kernel"]
    assert rows["graph"].tolist() == [4, 4]
    assert rows["launch_ns"].tolist() == [1_000, 1_000]
    assert rows["stream"].tolist() == [7, 8]
    assert collected.missing == {}


def test_a_thread_gets_the_number_that_the_frameworks_spans_have(cupti: FakeCupti) -> None:
    collected, _ = recorded(cupti, call(LAUNCH, 5, 1, thread=HERE), kernel("k", 5, 4, 9), number=hashed)
    assert collected.tables["kernel"]["thread"].tolist() == [hashed(HERE)]


def test_a_thread_that_is_not_to_be_found_keeps_its_half(cupti: FakeCupti) -> None:
    collected, _ = recorded(cupti, call(LAUNCH, 5, 1, thread=0x11), kernel("k", 5, 4, 9))
    assert collected.tables["kernel"]["thread"].tolist() == [0x11]


def test_a_kernel_before_its_launch_shows_that_the_devices_clock_is_off(cupti: FakeCupti) -> None:
    """Planted: the device's clock is 1 ms slow."""
    collected, strings = recorded(cupti, call(LAUNCH, 5, 1_004_000), kernel("k", 5, 4_000, 9_000))

    assert samples(collected, strings)[counters.CLOCK_RESIDUAL] == 1_000_000
    assert collected.missing["clock of kernels"] == "the device's times may be off by 1000 µs"


def test_all_that_was_lost_is_counted_and_reported(cupti: FakeCupti) -> None:
    cupti.dropped = 3
    collected, strings = recorded(
        cupti,
        call(LAUNCH, 1, 1_000),
        kernel("good", 1, 4_000, 9_000),
        call(LAUNCH, 2, 2_000),  # its kernel never came
        call(LAUNCH, 3, 2_500, returned=1),  # it was refused: there is no kernel to come
        call(LAUNCH, 4, 3_000),
        kernel("backwards", 4, 9_000, 4_000),
        call(LAUNCH, 5, 3_000),
        kernel("never begun", 5, -WALL_NS, 4_000),
        object(),  # of no kind
    )

    assert len(collected.tables["kernel"]) == 1
    assert samples(collected, strings)[counters.LOST] == 7  # 3 dropped, 1 silent, 2 impossible, 1 not read
    (reason,) = collected.missing.values()
    assert reason == (
        "7 of 8 records of kernels, copies and memsets were lost: launches without their kernel (1), "
        "records with impossible times (2), records that could not be read (1), dropped by the profiler (3)"
    )


def test_kernels_without_a_launch_are_reported(cupti: FakeCupti) -> None:
    collected, _ = recorded(cupti, kernel("k", 5, 4_000, 9_000), call(LAUNCH, 6, 1), kernel("k", 6, 5, 7))

    assert collected.tables["kernel"]["launch_ns"].tolist() == [-1, 1]
    assert collected.missing["launches of kernels"].startswith("1 of 2 kernels, copies and memsets came without")


def test_only_calls_that_ask_the_device_for_something_are_recorded(cupti: FakeCupti) -> None:
    collector = ActivityCollector(cupti, clock=cupti.clock)
    collector.start("kernels")

    assert cupti.enabled == {
        *(("kind", number) for number in (10, 1, 22, 2)),
        *(("runtime", number) for number in (41, 51, 211, 311, 505)),
        ("driver", 307),
    }
    collector.stop()
    assert cupti.enabled == set()
    assert cupti.calls == ["flush 1", "unsubscribe"]  # while nothing is recorded any more


def test_a_library_that_is_older_than_a_call_goes_without_it(cupti: FakeCupti) -> None:
    cupti.fails["activity_enable_driver_api"] = 1
    collected, _ = recorded(cupti, call(LAUNCH, 5, 1), kernel("k", 5, 4, 9))
    assert len(collected.tables["kernel"]) == 1


def test_a_clock_that_reads_slowly_is_reported() -> None:
    clock = FakeClock()

    def slowly() -> int:
        clock.now_ns += 30_000
        return clock.now_ns

    cupti = FakeCupti(slowly)
    collector, strings = ActivityCollector(cupti, clock=slowly), Strings()
    collector.start("kernels")
    collector.stop()
    collected = collector.drain(strings)

    assert samples(collected, strings)[counters.CLOCK_RESIDUAL] >= 30_000
    assert collected.missing["clock of kernels"].startswith("the device's times may be off by")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (35, "the driver keeps them for root"),
        (27, "CUPTI does not support this device"),
        (15, "newer than the driver"),
        (999, r"CUPTI refuses: ERROR \(999\)"),
    ],
)
@pytest.mark.parametrize("function", ["subscribe", "activity_enable", "get_timestamp"])
def test_a_refusal_is_one_sentence_and_changes_nothing(
    cupti: FakeCupti, function: str, status: int, reason: str
) -> None:
    cupti.fails[function] = status
    with pytest.raises(UnavailableError, match=reason):
        ActivityCollector(cupti, clock=cupti.clock).start("kernels")
    assert not cupti.is_subscribed
    assert cupti.enabled == set()
    assert collector.available(cupti) is None or function != "activity_enable"


@pytest.mark.parametrize(
    ("client", "said"),
    [("CUPTI for Kineto", "CUPTI for Kineto"), ("", "its name is not known"), ("\x00\x07", "its name is not known")],
)
def test_another_client_is_named(cupti: FakeCupti, client: str, said: str) -> None:
    cupti.fails["subscribe"], cupti.other = 39, client
    assert collector.available(cupti) == f"another tool records what the device does: {said}"


def test_without_a_driver_the_librarys_own_words_are_reported(cupti: FakeCupti) -> None:
    cupti.fails["subscribe"] = RuntimeError("CUDA driver is not found (libcuda.so.1: cannot open shared object file)")
    assert str(collector.available(cupti)).startswith("CUPTI does not answer: CUDA driver is not found")


def test_without_cupti_python_the_command_to_type_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    monkeypatch.delitem(sys.modules, "cupti.cupti", raising=False)
    assert collector.available() == "CUPTI's records need cupti-python: pip install 'tbdprof[counters]'"


def test_it_is_available_where_a_subscription_is(cupti: FakeCupti) -> None:
    assert collector.available(cupti) is None
    assert not cupti.is_subscribed


def test_a_flush_that_hangs_is_left_alone_and_nothing_more_is_asked(cupti: FakeCupti) -> None:
    cupti.hang = threading.Event()
    collector, strings = ActivityCollector(cupti, clock=cupti.clock, limit_s=0.01), Strings()
    collector.start("kernels")
    cupti.records = [kernel("k", 5, 4, 9)]
    collector.stop()
    collected = collector.drain(strings)
    cupti.hang.set()

    assert collected.tables == {}
    assert "had not handed over its records after 0.01 s" in collected.missing["activity"]
    with pytest.raises(UnavailableError, match="no more are asked for"):
        collector.start("kernels")


def test_a_flush_that_fails_gives_cupti_back_and_says_so(cupti: FakeCupti) -> None:
    cupti.fails["activity_flush_all"] = 999
    collected, _ = recorded(cupti, kernel("k", 5, 4, 9))

    assert len(collected.tables["kernel"]) == 0
    assert collected.missing["activity"] == "CUPTI refuses: ERROR (999)"
    assert not cupti.is_subscribed
    assert cupti.enabled == set()


def test_windows_follow_one_another(cupti: FakeCupti) -> None:
    collector, strings = ActivityCollector(cupti, clock=cupti.clock), Strings()
    for correlation in (1, 2):
        collector.start("kernels")
        cupti.records = [call(LAUNCH, correlation, 1), kernel("k", correlation, 4, 9 * correlation)]
        collector.stop()
        collector.stop()
        assert collector.drain(strings).tables["kernel"]["end_ns"].tolist() == [9 * correlation]
        assert collector.drain(strings).tables == {}
    collector.close()


def test_the_installed_cupti_pythons_records_have_the_names_that_are_read() -> None:
    """Its classes can be made without a driver, and its enumerations hold the launches of every CUDA."""
    cupti = pytest.importorskip("cupti.cupti")
    records = Records(cupti)
    record = cupti.ActivityKernel13()
    record.kind, record.start, record.end, record.correlation_id = cupti.ActivityKind.CONCURRENT_KERNEL, 4, 9, 5
    record.grid_x, record.block_x, record.registers_per_thread, record.static_shared_memory = 8, 128, 40, 1024
    copy = cupti.ActivityMemcpy7()
    copy.kind, copy.start, copy.end, copy.bytes, copy.copy_kind = cupti.ActivityKind.MEMCPY, 10, 20, 4096, 1
    between = cupti.ActivityMemcpyPtoP4()
    between.kind, between.copy_kind = cupti.ActivityKind.MEMCPY2, 10
    filled = cupti.ActivityMemset5()
    filled.kind, filled.bytes = cupti.ActivityKind.MEMSET, 256
    launch = cupti.ActivityAPI()
    launch.kind, launch.cbid, launch.start, launch.correlation_id = cupti.ActivityKind.RUNTIME, 211, 1, 5
    records.take([record, copy, between, filled, launch])

    assert records.unread == 0
    assert [(each.name, each.moved_bytes) for each in records.activities[1:]] == [
        ("Memcpy HtoD", 4096), ("Memcpy PtoP", 0), ("Memset", 256)
    ]  # fmt: skip
    assert records.activities[0].grid == (8, 0, 0)
    assert records.activities[0].shared_bytes == 1024
    assert records.launched == {5}
    runtime, driver = asking(cupti).values()
    assert {"cudaLaunchKernel_v7000", "cudaGraphLaunch_v10000", "cudaMemcpyAsync_v3020"} <= set(runtime.values())
    assert runtime[505].endswith("__cudaLaunchKernel_v13000")
    assert "cuLaunchKernel" in driver.values()
    assert not any("HostFunc" in name or "Node" in name for name in (*runtime.values(), *driver.values()))
