"""Peaks of known devices, each held against the datasheet of a board at that datasheet's own clock."""

import pytest

from tbdprof.collect.gpu import devices
from tbdprof.errors import UnavailableError
from tbdprof.facts.records import Peaks

# name, capability, multiprocessors, clock in GHz, dense TFLOP/s published, and where.
BOARDS = [
    ("Tesla P100-SXM2-16GB", "6.0", 56, 1.480, {"fp32": 10.6, "fp64": 5.3}, "Tesla P100 datasheet"),
    ("NVIDIA GeForce GTX 1080 Ti", "6.1", 28, 1.582, {"fp32": 11.34}, "GTX 1080 Ti specifications"),
    ("Tesla V100-SXM2-16GB", "7.0", 80, 1.530, {"fp32": 15.7, "fp64": 7.8, "fp16": 125}, "Tesla V100 datasheet"),
    ("Tesla T4", "7.5", 40, 1.590, {"fp32": 8.1, "fp16": 65}, "Tesla T4 datasheet"),
    (
        "NVIDIA A100-SXM4-40GB",
        "8.0",
        108,
        1.410,
        {"fp32": 19.5, "fp64": 19.5, "tf32": 156, "fp16": 312, "bf16": 312},
        "A100 datasheet; FP64 on tensor cores",
    ),
    ("NVIDIA GeForce RTX 2080 Ti", "7.5", 68, 1.635, {"fp32": 14.2, "fp16": 56.9}, "Turing whitepaper, into FP32"),
    ("NVIDIA A10", "8.6", 72, 1.695, {"fp32": 31.2, "tf32": 62.5, "bf16": 125}, "A10 datasheet"),
    ("NVIDIA RTX A6000", "8.6", 84, 1.800, {"fp32": 38.7, "tf32": 77.4, "fp16": 154.8}, "GA102 whitepaper"),
    ("NVIDIA GeForce RTX 3090", "8.6", 82, 1.695, {"fp32": 35.6, "tf32": 35.6, "fp16": 71}, "GA102 whitepaper"),
    ("NVIDIA A40", "8.6", 84, 1.740, {"fp32": 37.4, "tf32": 74.8, "bf16": 149.7}, "A40 datasheet"),
    (
        "NVIDIA GeForce RTX 4090",
        "8.9",
        128,
        2.520,
        {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "fp8": 330.3},
        "Ada whitepaper",
    ),
    ("NVIDIA L4", "8.9", 58, 2.040, {"fp32": 30.3, "tf32": 60, "fp16": 121, "fp8": 242.5}, "L4 datasheet"),
    ("NVIDIA L40S", "8.9", 142, 2.520, {"fp32": 91.6, "tf32": 183, "bf16": 362, "fp8": 733}, "L40S datasheet"),
    ("NVIDIA H100 80GB HBM3", "9.0", 132, 1.980, {"fp32": 67, "fp64": 67}, "H100 SXM datasheet, CUDA cores' clock"),
    (
        "NVIDIA H200",
        "9.0",
        132,
        1.830,
        {"tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9},
        "Hopper whitepaper, tensor cores' clock",
    ),
    ("NVIDIA H100 NVL", "9.0", 132, 1.785, {"fp32": 60, "fp64": 60}, "H100 NVL datasheet, CUDA cores' clock"),
    ("NVIDIA H100 PCIe", "9.0", 114, 1.620, {"fp16": 756}, "H100 PCIe datasheet"),
    ("NVIDIA B200", "10.0", 148, 1.850, {"tf32": 1125, "bf16": 2250, "fp8": 4500}, "HGX B200 datasheet"),
    ("NVIDIA B200", "10.0", 148, 1.980, {"fp32": 75}, "HGX B200 datasheet"),
    (
        "NVIDIA GeForce RTX 5090",
        "12.0",
        170,
        2.407,
        {"fp32": 104.8, "tf32": 104.8, "fp16": 209.5, "fp8": 419},
        "RTX Blackwell whitepaper",
    ),
    (
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "12.0",
        188,
        2.617,
        {"fp32": 126, "tf32": 251.9, "bf16": 503.8, "fp8": 1007},
        "RTX Blackwell PRO whitepaper",
    ),
]


def peaks(name: str, capability: str, multiprocessors: int = 100, clock_ghz: float = 1.5) -> Peaks:
    return devices.peaks(name, capability, multiprocessors=multiprocessors, clock_hz=clock_ghz * 1e9)


@pytest.mark.parametrize(("name", "capability", "multiprocessors", "clock_ghz", "published", "source"), BOARDS)
def test_a_peak_is_that_of_the_datasheet(
    name: str, capability: str, multiprocessors: int, clock_ghz: float, published: dict[str, float], source: str
) -> None:
    found = peaks(name, capability, multiprocessors, clock_ghz).flops_per_s

    assert {each: found[each] / 1e12 for each in published} == pytest.approx(published, rel=0.013), source


def test_each_figure_says_how_it_comes_about() -> None:
    found = devices.peaks("NVIDIA H200", "9.0", multiprocessors=132, clock_hz=1.98e9, memory_bytes_per_s=4.917e12)

    assert found.flops_per_s["fp32"] == 132 * 256 * 1.98e9
    assert found.sources["fp32"] == "132 multiprocessors × 256 FLOP a clock × 1980 MHz"
    assert found.bytes_per_s == 4.917e12
    assert "bus" in found.sources["memory"]
    assert found.sources["vector bf16"] == "132 multiprocessors × 512 FLOP a clock × 1980 MHz"
    beside = {f"vector {precision}" for precision in ("fp64", "fp16", "bf16")}
    assert found.sources.keys() == {*found.flops_per_s, *beside, "memory"}


def test_a_bandwidth_the_driver_does_not_report_is_not_known() -> None:
    found = peaks("NVIDIA H200", "9.0")

    assert found.bytes_per_s is None
    assert found.sources["memory"] == "its driver does not report it"


def test_a_capability_that_is_not_known_is_refused_in_one_line() -> None:
    with pytest.raises(UnavailableError, match=r"^the peak of NVIDIA Q1 is not known \(compute capability 14\.2\)"):
        peaks("NVIDIA Q1", "14.2")


@pytest.mark.parametrize(("multiprocessors", "clock_ghz"), [(0, 1.5), (100, 0.0)])
def test_a_driver_that_reports_no_size_or_clock_gives_no_peak(multiprocessors: int, clock_ghz: float) -> None:
    with pytest.raises(UnavailableError, match="no multiprocessors or no clock"):
        peaks("NVIDIA H200", "9.0", multiprocessors, clock_ghz)


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA A10G", "8.6"),  # half an A10's rate
        ("NVIDIA H20", "9.0"),  # a quarter of an H100's a clock
        ("NVIDIA GeForce RTX 5090 D", "12.0"),
        ("NVIDIA GeForce GTX 1660 Ti", "7.5"),  # has no tensor cores
    ],
)
def test_tensor_cores_of_a_board_whose_rate_is_not_known_are_not_guessed(name: str, capability: str) -> None:
    found = peaks(name, capability)

    assert set(found.flops_per_s) <= {"fp32", "fp64"}
    assert found.flops_per_s["fp32"]
    assert found.sources["fp16"] == "the rate of this board's tensor cores is not known"


def test_geforce_boards_add_up_in_fp32_at_half_the_rate() -> None:
    for capability in ("7.5", "8.6", "8.9", "12.0"):
        geforce, full = peaks("NVIDIA GeForce RTX 2080", capability), peaks("NVIDIA RTX PRO 6000", capability)

        assert 2 * geforce.flops_per_s["fp16"] == full.flops_per_s["fp16"]
        assert geforce.flops_per_s["fp32"] == full.flops_per_s["fp32"]


# name, capability, multiprocessors, clock in GHz, TFLOP/s published for arithmetic without tensor cores, and where.
VECTOR = [
    ("Tesla V100-SXM2-16GB", "7.0", 80, 1.530, {"fp32": 15.7, "fp64": 7.8, "fp16": 31.4}, "Volta whitepaper"),
    ("Quadro RTX 6000", "7.5", 72, 1.770, {"fp32": 16.3, "fp16": 32.6}, "Turing whitepaper"),
    (
        "NVIDIA A100-SXM4-40GB",
        "8.0",
        108,
        1.410,
        {"fp32": 19.5, "fp64": 9.7, "fp16": 78, "bf16": 39},
        "Ampere whitepaper",
    ),
    ("NVIDIA GeForce RTX 3090", "8.6", 82, 1.695, {"fp32": 35.6, "fp16": 35.6, "bf16": 35.6}, "GA102 whitepaper"),
    ("NVIDIA GeForce RTX 4090", "8.9", 128, 2.520, {"fp32": 82.6, "fp16": 82.6, "bf16": 82.6}, "Ada whitepaper"),
    (
        "NVIDIA H100 80GB HBM3",
        "9.0",
        132,
        1.980,
        {"fp32": 66.9, "fp64": 33.5, "fp16": 133.8, "bf16": 133.8},
        "Hopper whitepaper",
    ),
    (
        "NVIDIA GeForce RTX 5090",
        "12.0",
        170,
        2.407,
        {"fp32": 104.8, "fp16": 104.8, "bf16": 104.8},
        "RTX Blackwell whitepaper",
    ),
]


@pytest.mark.parametrize(("name", "capability", "multiprocessors", "clock_ghz", "published", "source"), VECTOR)
def test_what_is_no_product_has_the_peak_without_tensor_cores(
    name: str, capability: str, multiprocessors: int, clock_ghz: float, published: dict[str, float], source: str
) -> None:
    found = peaks(name, capability, multiprocessors, clock_ghz)

    assert {each: (found.of(each, product=False) or 0) / 1e12 for each in published} == pytest.approx(
        published, rel=0.013
    ), source
    assert found.of("tf32", product=False) is None  # a precision of tensor cores alone


def test_products_have_the_peak_of_tensor_cores_and_a_measured_peak_is_of_all() -> None:
    h100 = peaks("NVIDIA H100", "9.0")
    assert h100.of("bf16", product=True) == h100.flops_per_s["bf16"] == 8 * (h100.of("bf16", product=False) or 0)
    assert peaks("NVIDIA B200", "10.0").of("bf16", product=False) is None  # NVIDIA does not publish it

    measured = Peaks({"fp32": 1e11}, None, {})
    assert measured.of("fp32", product=False) == measured.of("fp32", product=True) == 1e11
