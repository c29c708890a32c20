"""Why a result is not there: a reason for everything that is null in the machine-readable report."""

from tbdprof.analysis.account import left_out
from tbdprof.analysis.memory import Memory
from tbdprof.analysis.throughput import CpuUtilization, Overhead, Throughput
from tbdprof.recording import Recording

NOT_YET = "this version of tbdprof does not measure it"
GPU_ONLY = "told on a GPU only; not measured by this version"
NOT_COUNTED = "the framework keeps no count over the whole run on this device"
NOT_TOLD = "the loop did not tell it"
NOT_REQUESTED = "the allocator does not tell how much was requested"
NOT_JUDGED = "a warm-up of a fixed length is not judged"
ONE_BLOCK = "an interval needs two blocks of steps or more"
ONE_WINDOW = "needs two clean windows to compare"
QUIET = frozenset({NOT_YET, GPU_ONLY, NOT_COUNTED, NOT_TOLD, NOT_REQUESTED, NOT_JUDGED, ONE_BLOCK, ONE_WINDOW})

UNMEASURED = (
    *("time", "time_by_layer", "kernels", "low_utilization", "flops_per_sample", "overhead.kernels_window"),
    *(f"utilization.{part}" for part in ("device_busy", "fp32_flop", "fp32_pipe", "tensor_pipe", "mfu")),
)
BENEATH = ("allocator_cache", "driver_context", "other_processes")


def reasons(
    recording: Recording,
    memory: Memory | None,
    throughput: Throughput | None,
    cpu: CpuUtilization | None,
    overhead: Overhead | None,
) -> dict[str, str]:
    """Return the reason for each missing result; what was told while recording goes before what is concluded here."""
    found = {
        **dict.fromkeys(UNMEASURED, NOT_YET),
        **{f"memory.{part}": GPU_ONLY for part in BENEATH},
        **_of_run(recording, throughput),
        **(_of_memory(recording, memory) if memory else {"memory": _without(recording, "memory")}),
        **(_of_throughput(recording, throughput) if throughput else {"throughput": _without(recording, "clean")}),
        **_of_overhead(overhead),
        **recording.missing,
    }
    if cpu is None:
        found.setdefault("utilization.cpu", found.get("throughput", "not sampled in the clean windows"))
    others = left_out(recording)
    return found if others is None else {**found, "other devices": others}


def _of_run(recording: Recording, throughput: Throughput | None) -> dict[str, str]:
    run = recording.run
    found = {f"run.{name}": NOT_TOLD for name in ("batch_size", "precision", "seed") if getattr(run, name) is None}
    if not any(item.trainable for item in run.parameters):
        found["run.parameters"] = "no trained parameter was seen"
    if run.settled is None:
        found["run.settled"] = NOT_JUDGED if run.settled_by else "the warm-up did not end"
    if throughput is None or throughput.drifted is None:
        found["run.drifted"] = ONE_WINDOW
    return found


def _of_memory(recording: Recording, memory: Memory) -> dict[str, str]:
    run, found = recording.run, dict[str, str]()
    if memory.independent_peak_bytes is None:
        found["independent_peak_bytes"] = run.independent_total or "the framework told no running total"
    if run.whole_run_peak_bytes is None:
        found["whole_run_peak_bytes"] = NOT_COUNTED
    if memory.rounding_at_peak_bytes is None or memory.rounding_max_bytes is None:
        found["rounding"] = NOT_REQUESTED
    if memory.at_optimizer_step is None:
        found["at_optimizer_step"] = "no optimizer's step was seen in the memory window"
    return found


def _of_throughput(recording: Recording, throughput: Throughput) -> dict[str, str]:
    found = {} if throughput.rate.interval else {"throughput.ci95": ONE_BLOCK}
    if throughput.samples_per_unit(recording.run) is None:
        counted = "only steps were counted: no samples were told"
        found |= {"throughput.samples_per_s": counted, "throughput.ci95": counted}
    return found


def _of_overhead(overhead: Overhead | None) -> dict[str, str]:
    if overhead is None:
        return {"overhead.memory_window": "needs a memory window of two steps beside a clean one"}
    return {} if overhead.interval else {"overhead.memory_window.ci95": ONE_BLOCK}


def _without(recording: Recording, window: str) -> str:
    """Say why there is nothing from the windows of a name."""
    if not any(len(item.table("step")) for item in recording.windows):
        return "no step was recorded: prof.step() was never called, or the run ended during warm-up"
    if recording.named(window):
        return (
            f"the {window} windows saw no whole block" if window == "clean" else "no memory came or went in the window"
        )
    return f"the run ended before a {window} window was complete: {_spent(recording)}"


def _spent(recording: Recording) -> str:
    """Say where the steps went."""
    warmup = sum(len(item.table("step")) for item in recording.windows if item.name == "warmup")
    return f"{warmup} steps went to the warm-up; give the loop more, or fix the warm-up's length"
