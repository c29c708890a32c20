"""Nsight Compute, played by a script that writes what it would have written."""

import ctypes
import json
import os
import sys
import time
from pathlib import Path

import pytest

from tbdprof.collect import ncu
from tbdprof.collect.ncu import output
from tbdprof.errors import UnavailableError
from tbdprof.facts import counters
from tbdprof.facts.records import Strings

PAGE = """==PROF== Connected to process 4711 (/usr/bin/python3.11)
==PROF== Profiling "sgemm" - 0: 0%....50%....100% - 4 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"dram__bytes.sum","gpu__time_duration.sum","sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed",\
"sm__ops_path_tensor_src_tf32_dst_fp32.sum","smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
"","","","","","","","","","","","byte","ns","%","","inst"
"0","4711","python","host","void gemm<(int)4, float>(T1 *, int)","1","7","(256, 1, 1)","(16, 8, 1)","0","9.0",\
"1,024","2,500","62.5","0","1,000,000"
"1","4711","python","host","void add(float *, ""x"")","1","13","(128, 1, 1)","(2, 1, 1)","0","9.0",\
"512","100","n/a","4,096","0"
==PROF== Disconnected from process 4711
"""
FLAGS = (
    "--config-file",
    "--page",
    "--print-units",
    "--profile-from-start",
    "--clock-control",
    "--cache-control",
    "--replay-mode",
)


def tool(folder: Path, body: str) -> Path:
    """Return a tool that knows its log's path, its metrics and its child, and keeps its words."""
    file = folder / "ncu"
    lines = (
        f"#!{sys.executable}",
        "import json, pathlib, subprocess, sys, time",
        "words = sys.argv[1:]",
        "log = pathlib.Path(words[words.index('--log-file') + 1])",
        "metrics = words[words.index('--metrics') + 1].split(',')",
        "child = words[words.index('--metrics') + 2:]",
        f"pathlib.Path({str(folder / 'words')!r}).write_text(json.dumps(words))",
        f"PAGE = {PAGE!r}",
        body,
    )
    file.write_text("\n".join(lines))
    file.chmod(0o755)
    return file


def count(folder: Path, body: str, limit_s: float = 20.0) -> ncu.Counted:
    return ncu.count(["child"], ncu.metrics("9.0", "tf32"), tool=tool(folder, body), limit_s=limit_s)


def test_launches_come_in_order_in_nanoseconds_bytes_counts_and_fractions() -> None:
    first, second = output.launches(PAGE)

    assert (first.name, first.stream) == ("void gemm<(int)4, float>(T1 *, int)", 7)
    assert (first.grid, first.block) == ((16, 8, 1), (256, 1, 1))
    assert first.values == {
        "dram__bytes.sum": 1024,
        "gpu__time_duration.sum": 2500,
        "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed": 0.625,
        "sm__ops_path_tensor_src_tf32_dst_fp32.sum": 0,
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 1_000_000,
    }
    assert second.name == 'void add(float *, "x")'
    assert "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed" not in second.values, "n/a is not 0"


def test_units_that_are_not_base_are_brought_to_it_and_whatever_is_counted_is_in_ones() -> None:
    text = PAGE.replace('"byte","ns"', '"Kbyte","us"').replace('"%","","inst"', '"%","op","thread"')

    first, second = output.launches(text)

    assert (first.values["dram__bytes.sum"], first.values["gpu__time_duration.sum"]) == (1_024_000, 2_500_000)
    assert first.values["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == 1_000_000
    assert second.values["sm__ops_path_tensor_src_tf32_dst_fp32.sum"] == 4096


def test_older_tools_write_units_in_full() -> None:
    launches = output.launches(PAGE.replace('"byte","ns"', '"byte","nsecond"'))

    assert launches == output.launches(PAGE)


def test_names_are_spelled_as_the_runtime_of_cpp_does() -> None:
    text = PAGE.replace("void gemm<(int)4, float>(T1 *, int)", "_ZN2at4gemmILi4EfEEvPT0_i")

    first, second = output.launches(text)

    assert first.name == "void at::gemm<4, float>(float*, int)"
    assert second.name.startswith("void add"), "what is not mangled stays"
    assert output.demangled("_Zwhat is this") == "_Zwhat is this"


@pytest.mark.parametrize("text", ["", "==ERROR== no\n", '"ID","Kernel Name"\n', "garbage,\n1\n"])
def test_what_is_no_page_has_no_launches(text: str) -> None:
    assert output.launches(text) == []


def test_a_row_cut_short_is_left_out() -> None:
    cut = PAGE[: PAGE.index('"512"')]

    assert len(output.launches(cut)) == 1


def test_the_tool_is_asked_to_touch_neither_clocks_nor_caches_and_to_wait_for_the_step(tmp_path: Path) -> None:
    count(tmp_path, "log.write_text(PAGE)")

    words = json.loads((tmp_path / "words").read_text())
    given = {flag: words[words.index(flag) + 1] for flag in FLAGS}
    assert given == dict(zip(FLAGS, ("off", "raw", "base", "off", "none", "none", "kernel"), strict=True))
    assert "--csv" in words
    assert words[-1] == "child"
    assert words[words.index("--target-processes") + 1] == "application-only"
    assert words[words.index("--print-kernel-base") + 1] == "mangled"


def test_a_counted_step_becomes_kernels_one_after_another_and_their_counts(tmp_path: Path) -> None:
    strings = Strings()

    found = ncu.tables(count(tmp_path, "log.write_text(PAGE)"), strings, "cuda:0")

    kernels, counts = found["kernel"], found["count"]
    assert kernels["start_ns"].tolist() == [0, 2500]
    assert kernels["end_ns"].tolist() == [2500, 2600]
    assert [strings[index] for index in kernels["grid"]] == ["[16, 8, 1]", "[2, 1, 1]"]
    assert {strings[index] for index in kernels["device"]} == {"cuda:0"}
    values = {(int(row["kernel"]), strings[int(row["counter"])]): float(row["value"]) for row in counts}
    assert values[0, counters.COUNTED_FFMA] == 1_000_000
    assert values[1, counters.counted_tensor_ops("tf32")] == 4096
    assert (1, counters.COUNTED_FP32_PIPE) not in values


def test_a_metric_the_device_does_not_have_is_left_out_and_reported(tmp_path: Path) -> None:
    refuses = """
if any("tensor_src" in each for each in metrics):
    log.write_text("==ERROR== Failed to find metric sm__ops_path_tensor_src_tf32_dst_fp32.sum\\n")
    sys.exit(1)
log.write_text(PAGE)
"""

    counted = count(tmp_path, refuses)

    assert counted.remarks == ["unknown on this device: sm__ops_path_tensor_src_tf32_dst_fp32.sum"]
    assert counters.counted_tensor_ops("tf32") not in counted.counter_of.values()


def test_all_tries_together_have_the_time_of_one(tmp_path: Path) -> None:
    refuses = """
time.sleep(0.4)
log.write_text(f"==ERROR== Failed to find metric {metrics[-1]}\\n")
"""

    with pytest.raises(UnavailableError, match="was not done after"):
        count(tmp_path, refuses, limit_s=0.7)


def test_a_tool_that_goes_on_without_an_unknown_metric_is_not_run_again(tmp_path: Path) -> None:
    goes_on = f"""
runs = pathlib.Path({str(tmp_path / "runs")!r})
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
log.write_text("==ERROR== Failed to find metric dram__bytes.sum\\n" + PAGE)
"""

    counted = count(tmp_path, goes_on)

    assert (tmp_path / "runs").read_text() == "x"
    assert counted.remarks == ["unknown on this device: dram__bytes.sum"]
    assert counters.COUNTED_DRAM_BYTES not in counted.counter_of.values()


def test_a_metric_named_by_a_pattern_is_the_one_of_that_name() -> None:
    said = "==ERROR== Failed to find metric regex:^dram__bytes\\.(sum|min)$\n==ERROR== Failed to find metric a__b.sum"

    assert output.unknown_metrics(said) == ["dram__bytes", "a__b.sum"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("print('==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'); sys.exit(1)", "keeps its counters"),
        ("log.write_text('==ERROR== Profiling failed because a driver resource was unavailable.')", "another profiler"),
        (
            "log.write_text('==ERROR== Profiling failed because a driver resource was unavailable or the user does not "
            "have permission to access NVIDIA GPU Performance Counters. See https://developer.nvidia.com/"
            "ERR_NVGPUCTRPERM.')",
            "another profiler holds the device's counters (DCGM lets them go with: dcgmi profile --pause), or",
        ),
        ("log.write_text('==ERROR== InterprocessLockFailed')", "set TMPDIR"),
        ("log.write_text('==ERROR== Failed to open/create lock file /tmp/nsight-compute-lock.')", "set TMPDIR"),
        ("print('==ERROR== Nsight Compute failed to connect to the driver.')", "^Nsight Compute failed to connect"),
        ("log.write_text('==ERROR== Cuda driver is not compatible with Nsight Compute.')", "install a newer one"),
        ("log.write_text('==ERROR== LibraryNotLoaded')", "cannot load"),
        ("log.write_text('==ERROR== It rains.')", "Nsight Compute failed: It rains."),
        ("print('tbdprof: out of memory (2 GiB)'); sys.exit(1)", "could not be run: out of memory (2 GiB)"),
        ("print('Segmentation fault'); sys.exit(11)", "ended with 11: Segmentation fault"),
        ("log.write_text('==WARNING== No kernels were profiled.')", ncu.NO_KERNEL),
        ("log.write_text(PAGE.replace('__', '_'))", ncu.NO_KERNEL),
    ],
)
def test_each_failure_has_one_reason(tmp_path: Path, body: str, reason: str) -> None:
    with pytest.raises(UnavailableError, match=reason.replace("(", r"\(").replace(")", r"\)")) as raised:
        count(tmp_path, body)

    assert "\n" not in str(raised.value)


def test_a_tool_that_knows_nothing_is_not_asked_for_ever(tmp_path: Path) -> None:
    refuses = "log.write_text(f'==ERROR== Failed to find metric {metrics[0]}\\n')"

    with pytest.raises(UnavailableError, match="too few metrics"):
        count(tmp_path, refuses)


def test_what_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    started = tmp_path / "grandchild"
    hangs = f"""
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path({str(started)!r}).write_text(str(child.pid))
time.sleep(60)
"""

    with pytest.raises(UnavailableError, match="not done after 4 s"):  # it must have started the other by then
        count(tmp_path, hangs, limit_s=4.0)

    assert _is_gone(int(started.read_text()))


def _is_gone(process: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_step_of_more_launches_than_are_counted_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu, "MOST_LAUNCHES", 2)

    counted = count(tmp_path, "log.write_text(PAGE)")

    assert counted.remarks == ["the first 2 launches of the step were counted, and no others"]


def test_a_metric_that_may_not_be_read_is_reported(tmp_path: Path) -> None:
    denied = """
said = "==WARNING== Unable to access the following 2 metrics: dram__bytes.sum, ctc__rx_bytes.sum.per_second.\\n\\n"
log.write_text(said + PAGE)
"""

    counted = count(tmp_path, denied)

    assert counted.remarks == ["not to be read on this device: dram__bytes.sum, ctc__rx_bytes.sum.per_second"]


def test_an_error_beside_counted_kernels_is_reported(tmp_path: Path) -> None:
    counted = count(tmp_path, "log.write_text(PAGE + '==ERROR== Failed to profile \"x\"\\n')")

    assert counted.remarks == ['Nsight Compute said: Failed to profile "x"']


def test_a_tool_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    (tmp_path / "ncu").write_text("")

    with pytest.raises(UnavailableError, match="cannot be started"):
        ncu.count(["child"], ncu.metrics("9.0", "fp32"), tool=tmp_path / "ncu")


def test_the_tool_is_found_on_the_path_first_then_the_newest_in_its_folders(tmp_path: Path) -> None:
    for version in ("2024.1", "2025.3"):
        (tmp_path / version).mkdir()
        tool(tmp_path / version, "")
    folders = [f"{tmp_path}/*"]

    assert ncu.find(os.devnull, folders) == tmp_path / "2025.3" / "ncu"
    assert ncu.find(str(tmp_path / "2024.1"), folders) == tmp_path / "2024.1" / "ncu"
    assert ncu.find(os.devnull, [f"{tmp_path}/none*"]) is None


def test_tensor_operations_are_counted_by_the_names_of_the_chip_and_the_types_of_the_run() -> None:
    hopper, ampere = ncu.metrics("9.0", "fp16"), ncu.metrics("8.0", "fp16")

    assert hopper["sm__ops_path_tensor_src_fp16.sum"] == counters.counted_tensor_ops("fp16")
    assert [name for name in ampere if "src_fp16" in name] == [
        "sm__ops_path_tensor_src_fp16_dst_fp16.sum",
        "sm__ops_path_tensor_src_fp16_dst_fp32.sum",
    ]
    assert [name for name in ncu.metrics("9.0", "fp32") if "tensor_src" in name] == [
        "sm__ops_path_tensor_src_tf32_dst_fp32.sum"
    ], "so that what a library does in TF32 against the flag is seen"


def test_where_the_tensor_pipe_multiplies_pairs_of_halves_these_are_counted_apart() -> None:
    with_pairs = [
        each
        for each in ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0")
        if any("hfma2" in name for name in ncu.metrics(each, "fp32"))
    ]

    assert with_pairs == ["8.0", "8.7", "9.0"]


class FakeCuda:
    """A driver that keeps what it was asked; `fails` names the call it refuses."""

    def __init__(self, *, current: int = 0, fails: str = "") -> None:
        self.calls: list[str] = []
        self.current, self.fails = current, fails

    def __getattr__(self, name: str) -> object:
        def call(*arguments: object) -> int:
            self.calls.append(name)
            if name == "cuCtxGetCurrent":
                ctypes.cast(arguments[0], ctypes.POINTER(ctypes.c_void_p))[0] = self.current
            return 1 if name == self.fails else 0

        return call


def test_the_step_is_marked_and_the_mark_taken_off_whatever_ends_it() -> None:
    cuda = FakeCuda(current=0x1000)

    with pytest.raises(KeyboardInterrupt), ncu.switched_on(0, cuda):
        raise KeyboardInterrupt

    assert cuda.calls == ["cuInit", "cuCtxGetCurrent", "cuProfilerStart", "cuProfilerStop"]


def test_a_thread_without_a_context_takes_the_one_frameworks_use() -> None:
    cuda = FakeCuda()

    with ncu.switched_on(1, cuda):
        pass

    assert cuda.calls[2:5] == ["cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"]


def test_a_driver_that_refuses_the_mark_is_a_reason() -> None:
    with (
        pytest.raises(UnavailableError, match="cuProfilerStart: error 1"),
        ncu.switched_on(0, FakeCuda(current=1, fails="cuProfilerStart")),
    ):
        pass
