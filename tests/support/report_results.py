"""Where the time of a step of 200 ms goes, worked out by hand, for the reporters.

Peaks of 100 GFLOP/s and 10 GB/s: the ridge is at 10 FLOP/B. Of 160 ms in kernels 100 ms are a convolution that does
8 GFLOP in them (80 %), 40 ms a normalization that does 0.4 GFLOP on 0.2 GB (10 %, half of the memory's speed), 20 ms
a kernel nobody counts.
"""

from dataclasses import replace

from tbdprof.facts.records import Peaks
from tbdprof.results.kernels import Flop, Group, LayerTime, LowUtilization, Utilization
from tbdprof.results.summary import Summary
from tbdprof.results.time import Idle, Overhead, PhaseTime, StepTime, Verdict

PEAKS = Peaks({"fp32": 100e9}, 10e9, {"fp32": "3×3 convolution 64→64, 56×56, batch 8, 2 threads", "memory": "copy"})

CONVOLUTION = Group(
    name="aten::mkldnn_convolution",
    operator="aten::conv2d",
    operation="convolution",
    phase="forward",
    layers=("layer1.0.conv1", "layer2.0.conv1", "conv1"),
    calls=3.0,
    seconds=0.1,
    share=0.625,
    utilization=0.8,
    flops=8e9,
    moved_bytes=0.4e9,
    precision="fp32",
    of_product=True,
    intensity=20.0,
    flops_per_s=80e9,
    bytes_per_s=4e9,
    limit="compute",
)
NORMALIZATION = replace(
    CONVOLUTION,
    name="void at::native::batch_norm<float>(float*, int)",
    operator="aten::batch_norm",
    operation="normalization",
    phase="backward",
    layers=("bn1",),
    calls=1.0,
    seconds=0.04,
    share=0.25,
    utilization=0.1,
    flops=0.4e9,
    moved_bytes=0.2e9,
    of_product=False,
    intensity=2.0,
    flops_per_s=10e9,
    bytes_per_s=5e9,
    limit="memory",
)
UNCOUNTED = replace(
    CONVOLUTION,
    name="mine::fused",
    operator="mine::fused",
    operation="other",
    phase="update",
    layers=(),
    calls=1.5,
    seconds=0.02,
    share=0.125,
    utilization=None,
    flops=None,
    moved_bytes=None,
    precision=None,
    of_product=False,
    intensity=None,
    flops_per_s=None,
    bytes_per_s=None,
    limit=None,
)
LAYERS = (
    LayerTime("layer1.0.conv1", 0.03, 0.06, 0.0, 0.5625, 7e9, 0.8, 4.0),
    LayerTime("bn1", 0.0, 0.04, 0.0, 0.25, None, None, 1.0),
    LayerTime("", 0.01, 0.0, 0.0, 0.0625, None, None, 2.0),
    LayerTime(None, 0.0, 0.0, 0.02, 0.125, None, None, 1.5),
)
TIME = StepTime(
    step_seconds=0.2,
    phases=(
        PhaseTime("data", 0.02, 0.0, 0.1),
        PhaseTime("forward", 0.06, 0.05, 0.3),
        PhaseTime("backward", 0.1, 0.09, 0.5),
        PhaseTime("recompute", 0.0, 0.0, 0.0),
        PhaseTime("update", 0.02, 0.02, 0.1),
        PhaseTime("other", 0.0, 0.0, 0.0),
    ),
    idle=Idle(0.2, 0.1, 0.1, None, None, None),
    covered=0.8,
    busy=0.8,
    overlap=0.0,
    kernels=1600.0,
    kernel_seconds=1e-4,
)
FLOP = Flop(0.5, "analytic", "fp32", 0.625, 100e9, PEAKS.sources["fp32"], 2.0)
VERDICT = Verdict(
    bound_by="compute",
    share=0.5,
    sentence="bound by compute: 50.0 % of the step is products",
    advice=("a lower precision", "a larger batch"),
    shares={"compute": 0.5, "memory": 0.2, "data": 0.1, "launching": 0.1},
    intervals={"compute": (0.45, 0.55)},
    candidates=("compute",),
)


def measured(summary: Summary, **changes: object) -> Summary:
    """Return a summary that has these results, or others in their place, as if a kernels window had been recorded."""
    recording = replace(summary.recording, run=replace(summary.recording.run, peaks=PEAKS, precision="fp32"))
    results: dict[str, object] = {
        "recording": recording,
        "kernels_overhead": Overhead(1.02, (0.98, 1.06)),
        "utilization": Utilization(0.79, 0.8, FLOP, FLOP, 1e9, 8e9),
        "step_time": TIME,
        "layers": LAYERS,
        "groups": (CONVOLUTION, NORMALIZATION, UNCOUNTED),
        "low_utilization": LowUtilization(0.6, 0.875, (NORMALIZATION,), (UNCOUNTED,)),
        "verdict": VERDICT,
    }
    return replace(summary, **{**results, **changes})  # type: ignore[arg-type]
