"""The levels in words and as JSON, from results made by hand."""

import json
from dataclasses import replace

import pytest
from make import run

from tbdprof.analysis.device.levels import explained
from tbdprof.analysis.summary import summarize
from tbdprof.facts.recording import Recording
from tbdprof.report import json_report, terminal
from tbdprof.results.found import Found, because
from tbdprof.results.kernels import Counted, CountedKernels
from tbdprof.results.levels import Agreement, KernelLevels, Levels, Pipes
from tbdprof.results.reasons import NOT_BY_COUNTER
from tbdprof.results.summary import Summary

KEY = ("void gemm<float>(float*)", "[16, 8, 1]", "[256, 1, 1]")
KERNELS = CountedKernels(KEY, 2.0, 0.01, 0.4, 2, 3e9, {"tf32": 5e9}, 2048.0, 0.61, 0.0, 0.55, 0.02, 0.57)
COUNTED = Counted(12, 4e9, {"tf32": 5e9}, 4096.0, 8.5e9, 0.5, 0.02, 0.52, (KERNELS,), (KEY,), 0.125, 3, ())
ROW = KernelLevels(KEY, 0.01, 0.4, True, 0.58, 0.57, Pipes(0.62, 0.0, 0.6), Pipes(0.61, 0.0))
LEVELS = Levels(
    (ROW,),
    (Agreement("FP32 pipe, sampled against counted", 17, 20, 0.02, -0.035),),
    0.49,
    0.52,
    Pipes(0.6, 0.0, 0.58),
    Pipes(0.59, 0.0),
    Pipes(0.57, 0.01),
)


def summary(counted: Counted | None = COUNTED, levels: Levels | None = LEVELS) -> Summary:
    return replace(summarize(Recording(run(device="cuda:0"))), counted=counted, levels=levels)


def test_the_full_report_has_each_level_of_the_longest_kernels() -> None:
    text = terminal.render(summary(), width=120, full=True)

    (row,) = (line for line in text.splitlines() if "gemm<float>" in line)
    assert row.replace(" %", "").split() == ["40.0", "gemm<float>", "58.0", "57.0", "60.0–62.0", "61.0", "0.0", "0.0"]
    (whole,) = (line for line in text.splitlines() if "all, by time" in line)
    assert "49.0 %" in whole
    assert "FP32 pipe, sampled against counted: 17 of 20 within 2 points, the worst -3.5" in text
    assert "the driver's own 57.0 %, sampled 60.0 %, counted 59.0 %" in text


def test_the_short_report_has_the_step_and_how_far_the_levels_agree() -> None:
    text = terminal.render(summary(), width=120)

    assert "gemm<float>" not in text
    assert "4.00 GFLOP fp32, 5.00 GFLOP tf32 (tensor); by definition 8.50 GFLOP; 12 launches" in text
    assert "17 of 20 within 2 points" in text
    assert "not counted: 1 kernels, 12.5 % of busy time" in text


def test_what_cannot_be_stands_in_the_report() -> None:
    planted = replace(COUNTED, violations=("counted above 1 of gemm: 1.350",))

    assert "counted above 1 of gemm: 1.350" in terminal.render(summary(planted), width=120)


def test_the_document_has_counts_levels_and_agreements() -> None:
    document = json_report.document(summary())

    json.dumps(document, allow_nan=False)
    assert document["counted"]["fp32_flops"] == 4e9
    assert document["counted"]["kernels"][0]["tensor_flops"] == {"tf32": 5e9}
    (row,) = document["levels"]["rows"]
    assert row["fp32_pipe"] == {"sampled_low": 0.6, "sampled": 0.62, "counted": 0.61, "difference": 0.62 - 0.61}
    assert row["flop"]["difference"] == 0.58 - 0.57
    assert document["levels"]["whole"]["tensor_pipe"]["device"] == 0.01
    assert document["levels"]["agreements"][0]["within"] == 17


def test_without_them_there_is_nothing_but_a_reason() -> None:
    plain = summary(None, None)

    assert "counted" not in terminal.render(plain, width=120)
    document = json_report.document(plain)
    assert document["counted"] is document["levels"] is None
    assert document["missing"]["counted"] == "counted with --exact only"
    assert "counted" not in plain.missing_now
    assert summarize(Recording(run())).missing["counted"] == summarize(Recording(run())).missing["levels"]


@pytest.mark.parametrize("exact", [COUNTED, None])
@pytest.mark.parametrize(
    "part", ["analytic_flop", "counted_flop", "sampled", "counted", "device", "everything", "nothing"]
)
def test_every_null_of_the_whole_has_its_reason(exact: Counted | None, part: str) -> None:
    absent = {"analytic_flop": None, "counted_flop": None, **dict.fromkeys(("sampled", "counted", "device"), Pipes())}
    chosen = absent if part == "everything" else {name: absent[name] for name in {part} & set(absent)}
    found = replace(LEVELS, **chosen)  # type: ignore[arg-type]
    whole = json_report.document(summary(exact, found))["levels"]["whole"]
    values = {f"levels.whole.{name}.{level}": value for name, each in whole.items() for level, value in each.items()}

    counted = because("not counted") if exact is None else Found(exact)
    reasons = explained(summary().recording, found, counted).under("levels")

    assert set(reasons) == {path for path, value in values.items() if value is None}
    assert {reasons.get("levels.whole.fp32_pipe.counted")} <= {None, "not counted", NOT_BY_COUNTER}
    assert ("not counted" in reasons.values()) == (exact is None and part in ("counted_flop", "counted", "everything"))
