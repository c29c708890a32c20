"""The fields that say where the time goes: named, in units, null with a reason."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from report.test_reporters import FULL, explained, nulls, profiled
from report_results import FLOP, NORMALIZATION, measured

from tbdprof.analysis.summary import summarize
from tbdprof.facts.file.reading import load
from tbdprof.report import json_report
from tbdprof.report.json_parts.time import kernels
from tbdprof.results.kernels import FusedKernel, Utilization

FIXTURE = Path(__file__).parent.parent / "fixtures" / "format-1.tbd"
DOCUMENT = json.loads(json_report.render(measured(summarize(profiled(FULL)))))


def test_utilization_has_its_value_level_coverage_peak_and_bound():
    found = DOCUMENT["utilization"]

    assert found["device_busy"] == {"value": 0.79, "in_window": 0.8, "level": "operators"}
    assert found["fp32_flop"] == found["mfu"] == {
        "value": 0.5, "level": "analytic", "precision": "fp32", "coverage": 0.625, "peak_flops": 100e9,
        "peak_source": "3×3 convolution 64→64, 56×56, batch 8, 2 threads", "bound": 2.0, "at_clock": None,
        "at_most": False,
    }  # fmt: skip
    assert DOCUMENT["run"]["flops_per_sample"] == 1e9


def test_a_gpus_busy_time_is_that_of_its_kernels():
    found = json_report.document(measured(summarize(profiled(FULL))))
    summary = measured(summarize(profiled(FULL)))
    on_gpu = replace(summary, recording=replace(summary.recording, run=replace(summary.recording.run, device="cuda:0")))

    assert found["utilization"]["device_busy"]["level"] == "operators"
    assert json_report.document(on_gpu)["utilization"]["device_busy"]["level"] == "kernels"


def test_the_fp32_figure_is_null_in_another_precision():
    bf16 = Utilization(0.79, 0.8, replace(FLOP, precision="bf16"), None, 1e9, 8e9)
    found = json_report.document(measured(summarize(profiled(FULL)), utilization=bf16))["utilization"]

    assert set(found["fp32_flop"].values()) == {None}
    assert found["mfu"]["value"] == 0.5
    assert found["mfu"]["precision"] == "bf16"


def test_phases_add_up_to_the_step_and_idle_has_every_reason():
    found = DOCUMENT["time"]

    assert sum(phase["seconds"] for phase in found["phases"].values()) == pytest.approx(found["step_s"])
    assert found["phases"]["forward"] == {"seconds": 0.06, "busy_seconds": 0.05, "share": 0.3}
    assert found["idle"] == {
        "total": 0.2, "data_wait": 0.1, "launching": 0.1,
        "synchronization": None, "copies": None, "communication": None,
    }  # fmt: skip
    assert found["covered"] == 0.8


def test_a_kernel_has_its_place_under_the_roofline():
    convolution, normalization, uncounted = DOCUMENT["kernels"]

    assert convolution == {
        "name": "aten::mkldnn_convolution", "operator": "aten::conv2d", "operation": "convolution", "phase": "forward",
        "layers": ["layer1.0.conv1", "layer2.0.conv1", "conv1"], "calls": 3.0, "seconds": 0.1, "share": 0.625,
        "utilization": 0.8, "precision": "fp32", "peak_flops": 100e9, "flops": 8e9,
        "moved_bytes": 0.4e9, "flops_per_byte": 20.0, "flops_per_s": 80e9, "bytes_per_s": 4e9,
        "limit": "compute", "headroom": 1.25, "fused": [],
    }  # fmt: skip
    assert normalization["name"] == "void at::native::batch_norm<float>(float*, int)"  # in full
    assert uncounted["peak_flops"] is uncounted["headroom"] is uncounted["limit"] is uncounted["utilization"] is None


def test_a_fused_kernel_has_the_operators_it_was_made_of_and_null_for_what_is_not_known():
    fused = FusedKernel("cpp_fused_add_relu_0", ("add", "relu"), None)
    (row,) = kernels((replace(NORMALIZATION, fused=(fused,)),), None) or []

    assert row["fused"] == [{"name": "cpp_fused_add_relu_0", "operators": ("add", "relu"), "nodes": None}]


def test_the_low_utilization_table_and_the_verdict_are_reported_in_full():
    low = DOCUMENT["low_utilization"]

    assert (low["average"], low["covered"]) == (0.6, 0.875)
    assert low["rows"] == DOCUMENT["kernels"][1:2]
    assert low["uncounted"] == DOCUMENT["kernels"][2:]
    assert DOCUMENT["verdict"] == {
        "bound_by": "compute", "share": 0.5, "sentence": "bound by compute: 50.0 % of the step is products",
        "advice": ["a lower precision", "a larger batch"],
        "shares": {"compute": 0.5, "memory": 0.2, "data": 0.1, "launching": 0.1},
        "intervals": {"compute": [0.45, 0.55]}, "candidates": ["compute"],
    }  # fmt: skip


def test_layers_and_the_cost_of_the_window_have_their_fields():
    assert DOCUMENT["time_by_layer"][0] == {
        "layer": "layer1.0.conv1", "forward_seconds": 0.03, "backward_seconds": 0.06, "other_seconds": 0.0,
        "share": 0.5625, "flops": 7e9, "utilization": 0.8, "calls": 4.0,
    }  # fmt: skip
    assert [row["layer"] for row in DOCUMENT["time_by_layer"]] == ["layer1.0.conv1", "bn1", "", None]
    assert DOCUMENT["overhead"]["kernels_window"] == {"ratio": 1.02, "ci95": [0.98, 1.06]}


def test_a_recording_of_format_1_has_a_reason_for_all_it_lacks():
    document = json.loads(json_report.render(summarize(load(FIXTURE))))

    assert [document[name] for name in ("verdict", "time", "time_by_layer", "kernels", "low_utilization")] == [None] * 5
    assert [path for path in nulls(document) if not explained(path, document["missing"])] == []


def test_a_part_has_its_fields_and_the_reasons():
    summary = measured(summarize(profiled(FULL)))

    assert set(json.loads(json_report.render(summary, "kernels"))) == {
        "schema", "kernels", "low_utilization", "missing",
    }  # fmt: skip
    assert json.loads(json_report.render(summary, "layers"))["time_by_layer"] == DOCUMENT["time_by_layer"]
    assert json.loads(json_report.render(summary, "memory"))["memory"] == DOCUMENT["memory"]
