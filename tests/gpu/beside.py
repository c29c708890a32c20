"""ResNet-50 beside what others measured: the paper's low-utilization tables, and images a second on such a card."""

from pathlib import Path
from typing import Any

from gpu import runs
from gpu.schedule import NOT_POSSIBLE, Verdict, judged

from tbdprof.analysis.summary import summarize

IMAGES_PER_S = {"tf32": 2259, "bf16": 3079}  # of the issue, on one card: TF32 and AMP
# Duration and FP32 utilization: tables V (TensorFlow) and VI (MXNet) of the TBD paper, batch 32, Quadro P4000.
PAPER = {
    "TensorFlow": {
        "magma_lds128_sgemm": "8.36 %, 30.0 %",
        "bn_fw_1C11": "5.53 %, 42.3 %",
        "bn_fw_tr_1C11": "4.65 %, 46.3 %",
        "EigenMetaKernel": "3.12 %, 20.0 %",
        "BiasNHWC": "2.48 %, 40.0 %",
    },
    "MXNet": {
        "bn_bw_1C11": "9.43 %, 40.7 %",
        "bn_fw_tr_1C11": "7.96 %, 44.0 %",
        "activation_bw_4d": "5.14 %, 10.0 %",
        "activation_fw_4d": "3.52 %, 10.0 %",
        "mxnet_generic": "2.85 %, 25.4 %",
    },
}


def throughput(folder: Path) -> Verdict:
    """Images a second at batch 256 beside the figures of the issue."""
    figures: dict[str, Any] = {}
    for precision, known in IMAGES_PER_S.items():
        summary = summarize(runs.recorded(runs.request(folder, precision, 256)))
        rate = summary.throughput
        figures[precision] = {
            "samples_per_s": None if rate is None else rate.rate.per_s,
            "issue": known,
            "ratio": None if rate is None else rate.rate.per_s / known,
            "bound by": None if summary.verdict is None else summary.verdict.sentence,
            "sm_clock_hz": runs.figures(summary)["sm_clock_hz"],
        }
    holds = {f"{each} was measured": row["samples_per_s"] is not None for each, row in figures.items()}
    return judged("throughput beside the issue's", holds, figures)


def low_utilization(folder: Path) -> Verdict:
    """ResNet-50's kernels below the average beside the paper's."""
    summary = summarize(runs.recorded(runs.request(folder, "fp32", 32)))
    low = summary.low_utilization
    if low is None:
        return Verdict(NOT_POSSIBLE, summary.missing.get("low_utilization", "no reason reported"))
    rows = {row.name: f"{100 * row.share:.2f} %, {100 * (row.utilization or 0):.1f} %" for row in low.rows[:5]}
    figures = {"here, PyTorch": rows, "average": low.average, "covered": low.covered, **PAPER}
    return judged("the table beside the paper's", {"it has rows": bool(rows)}, figures)
