"""Short names of the figures that limits are set on most, and the unit of any figure of the JSON report by its path."""

from collections.abc import Mapping

THROUGHPUT, STEP_TIME, PEAK_MEMORY = "throughput", "step_time", "peak_memory"
WITH_WAITS = "step_time_with_waits"
SHORT: Mapping[str, str] = {  # "": a figure of its own, which the JSON report has under other names or not at all
    THROUGHPUT: "",  # samples per second, or the run's own unit
    STEP_TIME: "",  # of a clean step
    WITH_WAITS: "",  # the same, if waits for a core are left out of the former
    PEAK_MEMORY: "",  # what the report's memory at the peak adds up to
    "weights": "memory.at_peak.weights",
    "weight_gradients": "memory.at_peak.weight_gradients",
    "feature_maps": "memory.at_peak.feature_maps",
    "workspace": "memory.at_peak.workspace",
    "dynamic": "memory.at_peak.dynamic",
    "device_memory": "device_memory.used_bytes",
    "data": "time.phases.data.seconds",
    "forward": "time.phases.forward.seconds",
    "backward": "time.phases.backward.seconds",
    "update": "time.phases.update.seconds",
    "communication": "time.communication.seconds",
    "idle": "time.idle.total",
    "kernels": "time.kernels_per_step",
    "busy": "utilization.device_busy.value",
    "fp32": "utilization.fp32_flop.value",
    "mfu": "utilization.mfu.value",
    "cpu": "utilization.cpu.value",
    "energy": "energy.joules_per_unit",
}
HELP = (
    "A limit is FIGURE < NUMBER or FIGURE > NUMBER (also <=, >=). With a sign, the number is a change from A: "
    "'throughput < -5%', 'peak_memory > +200 MiB'. Without one it is the value itself: 'step_time > 40 ms'.",
    f"A figure is any number of `tbdprof report --json` by its path, or one of these: {', '.join(SHORT)}.",
    "Exit code: 0 no limit is broken, 1 one is, 2 it cannot be asked like this, 3 the recordings cannot tell.",
)
SAME_AS: Mapping[str, str] = {"throughput.samples_per_s": THROUGHPUT, "throughput.unit.per_s": THROUGHPUT}
BYTES, SECONDS, RATE, SHARE, COUNT = "B", "s", "/s", "share", ""
_SHARES = ("share", "value", "in_window", "covered", "coverage", "overlap", "busy", "exposed", "hidden", "average")
_SIZES = ("at_peak", "max_per_category", "roles_at_peak", "roles_max", "at_optimizer_step", "outside_allocator_max")


def unit_of(path: str) -> str:
    """Return the unit of a figure: BYTES, SECONDS, RATE, SHARE, "J", "W", "Hz", "FLOP", or COUNT for a plain number."""
    parent, _, last = path.rpartition(".")
    parent = parent.rpartition(".")[2]
    if last.endswith("per_s") or path == THROUGHPUT or path.startswith("throughput.windows["):
        return RATE
    if last.endswith("bytes") or parent in _SIZES or path == PEAK_MEMORY:
        return BYTES
    if last.endswith(("_s", "seconds")) or path in (STEP_TIME, WITH_WAITS):
        return SECONDS
    for end, unit in (("watts", "W"), ("_hz", "Hz")):
        if last.endswith(end):
            return unit
    if "joules" in last:
        return "J"
    if last in _SHARES or parent in ("idle", "shares", "while_busy", "gpm") or last == "data_wait":
        return SHARE
    return "FLOP" if last.startswith("flops") and last != "flops_per_byte" else COUNT


def is_exact(path: str) -> bool:
    """Return whether a figure is a count that does not vary with time: bytes, FLOPs, numbers of things."""
    return unit_of(path) in (BYTES, COUNT, "FLOP") and not path.startswith(("overhead.", "sampled.", "device."))
