"""Every metric that is asked for is one of its chip, by NVIDIA's own table; skipped where that is not installed."""

import pytest
from judges.nvperf import Library

from tbdprof.collect import ncu
from tbdprof.collect.gpu import nvidia
from tbdprof.collect.pm.metrics import families

CHIPS = {
    "7.0": "GV100",
    "7.5": "TU102",
    "8.0": "GA100",
    "8.6": "GA102",
    "8.7": "GA10B",
    "8.9": "AD102",
    "9.0": "GH100",
    "10.0": "GB100",
    "10.3": "GB110",
    "12.0": "GB202",
}
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp64")
LACKING = {"8.7": {"dram__bytes.sum"}}  # Orin, whose memory is the host's; the tool is asked again without it


@pytest.fixture(scope="module")
def table() -> Library:
    cupti = nvidia.cupti()
    path = None if cupti is None else cupti.parent / "libnvperf_host.so"
    if path is None or not path.is_file():
        pytest.skip("no libnvperf_host beside a libcupti: pip install nvidia-cuda-cupti")
    return Library(str(path))


def chip(table: Library, capability: str) -> str:
    if CHIPS[capability] not in table.chips():
        pytest.skip(f"this libnvperf_host does not know {CHIPS[capability]}")
    return CHIPS[capability]


@pytest.mark.parametrize("capability", CHIPS)
def test_what_is_counted_of_a_kernel_is_known_of_its_chip(table: Library, capability: str) -> None:
    name = chip(table, capability)
    wanted = {metric for precision in PRECISIONS for metric in ncu.metrics(capability, precision)}

    assert {metric for metric in wanted if not table.has(name, metric)} == LACKING.get(capability, set())


@pytest.mark.parametrize("capability", CHIPS)
def test_pairs_of_halves_are_counted_where_the_tensor_pipe_multiplies_them(table: Library, capability: str) -> None:
    metric = "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.avg.pct_of_peak_sustained_elapsed"

    assert (metric in ncu.metrics(capability, "fp32")) == table.has(chip(table, capability), metric)


@pytest.mark.parametrize("capability", ["8.0", "8.6", "8.9", "9.0", "10.0", "12.0"])
def test_what_is_sampled_of_a_chip_can_be_had_by_one_of_its_names(table: Library, capability: str) -> None:
    name = chip(table, capability)
    plain = families(name)[-1]
    lacking = [each.counter for each in plain.metrics if not any(table.has(name, metric) for metric in each.names)]

    assert lacking == (["pm_fp32_pipe_lite"] if capability == "8.0" else []), "GA100 has one FP32 pipe"


def test_every_name_of_a_sampled_set_is_one_of_the_hopper_chips(table: Library) -> None:
    name = chip(table, "9.0")
    names = [metric for family in families(name) for each in family.metrics for metric in each.names[:1]]

    assert [metric for metric in names if not table.has(name, metric)] == []


def test_the_table_says_no(table: Library) -> None:
    assert not table.has(chip(table, "9.0"), "sm__inst_executed_pipe_fma_of_yore.sum")
    assert not table.has(chip(table, "9.0"), "sm__inst_executed_pipe_fma.avg.pct_of_nothing")
