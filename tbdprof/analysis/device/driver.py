"""The driver's figures for each window: busy fraction, clock, reasons for a lower clock, temperature.

Three sources give the busy fraction: the kernels' times (equation 1 of the TBD paper, Zhu et al., IISWC 2018,
arXiv:1803.06905), the driver's samples, and GPM. The last two cover all processes. The three are compared in the
kernels windows, where all are measured. GPM's FP32 figure is over elapsed time; divided by GPM's busy fraction, it
compares with figures over active time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tbdprof.analysis.device.samples import bounds_of, gathered, mean, samples_of
from tbdprof.facts import counters
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.recording import Recording
from tbdprof.facts.windows import CLEAN, KERNELS, WARMUP
from tbdprof.results.device import BusyCompared, Clock, Device, Gpm, Reasons
from tbdprof.results.found import Found, because, reasons
from tbdprof.results.reasons import GPU_ONLY, NO_WINDOW, NOT_BY_DRIVER, NOT_COMPARED

COMPARED = (CLEAN, KERNELS)
NOT_SAMPLED = "nothing was sampled by the device's driver"
NO_SAMPLE_INSIDE = "no sample lies within the counted steps: the windows were shorter than the period of the sampling"
NO_OWN_SAMPLES = "the driver gives no samples of its own, or there was time for one alone"

# Bits of nvmlClocksEventReasons (NVML API, "clocksEventReasons"), and two that older drivers have.
REASONS = {
    0x1: "idle",
    0x2: "applications' clocks setting",
    0x4: "power cap",
    0x8: "hardware slowdown (temperature, power brake or supply)",
    0x10: "sync boost with other cards",
    0x20: "temperature (software)",
    0x40: "temperature (hardware)",
    0x80: "power brake",
    0x100: "display clock setting",
    0x200: "board limit",
    0x400: "reliability limit",
}
CHOSEN = 0x1 | 0x2 | 0x100  # idle, or a clock that somebody set: not throttled


def device(recording: Recording, kernels_busy: float | None) -> Found[Device | None]:
    """Return the driver's figures, or why there are none; `kernels_busy` is the busy fraction by kernels' times."""
    windows = tuple(dict.fromkeys(window.name for window in recording.windows if bounds_of(window) is not None))
    clocked = tuple(name for name in windows if name != WARMUP)
    found = Device(
        driver_busy={name: mean(recording, name, counters.DRIVER_BUSY) for name in COMPARED},
        driver_period_s=_driver_period_s(recording),
        gpm={name: _gpm(recording, name) for name in COMPARED},
        sm_clock={name: clock(recording, name) for name in clocked},
        most_sm_clock_hz=_most(recording, windows, counters.SM_CLOCK_MAX) or _peaks_clock_hz(recording),
        memory_clock_hz={name: mean(recording, name, counters.MEMORY_CLOCK) for name in COMPARED},
        reasons={name: _reasons(recording, name) for name in COMPARED},
        most_celsius={name: _most(recording, (name,), counters.TEMPERATURE) for name in COMPARED},
        busy=None,
    )
    by_window = (found.driver_busy, found.gpm, found.sm_clock, found.memory_clock_hz, found.reasons, found.most_celsius)
    if not any(value is not None for each in by_window for value in each.values()):
        return because(why_no_device(recording))
    found = found if kernels_busy is None else _compared(recording, found, kernels_busy)
    return Found(found, _missing(recording, found))


def why_no_device(recording: Recording) -> str:
    """Return why the driver reported nothing."""
    return GPU_ONLY if recording.run.device == "cpu" else recording.missing.get(ReasonFor.DEVICE, NOT_SAMPLED)


def clock(recording: Recording, name: str) -> Clock | None:
    """Return the multiprocessors' clock in the windows of this name, or None if it was not sampled."""
    values, weights = gathered(recording, name, counters.SM_CLOCK)
    if not len(values):
        return None
    return Clock(float(np.average(values, weights=weights)), float(values.min()), float(values.max()))


def _missing(recording: Recording, found: Device) -> dict[str, str]:
    """Return the reason for each figure that is None."""
    by_window = (
        ("driver_busy", ReasonFor.DRIVER_BUSY, found.driver_busy),
        ("gpm", ReasonFor.GPM, found.gpm),
        ("sm_clock", ReasonFor.SM_CLOCK, found.sm_clock),
        ("memory_clock_hz", ReasonFor.MEMORY_CLOCK, found.memory_clock_hz),
        ("clock_reasons", ReasonFor.CLOCK_REASONS, found.reasons),
        ("most_celsius", ReasonFor.TEMPERATURE, found.most_celsius),
    )
    missing = {
        f"{name}.{window}": recording.missing.get(reported) or _why_not_inside(recording, window)
        for name, reported, values in by_window
        for window, value in values.items()
        if value is None
    }
    for window in COMPARED:
        missing |= _missing_of_gpm(found.gpm[window], f"gpm.{window}")
    if found.driver_period_s is None:
        missing["driver_busy.period_s"] = recording.missing.get(ReasonFor.DRIVER_BUSY, NO_OWN_SAMPLES)
    if found.most_sm_clock_hz is None:
        missing["sm_clock.most_hz"] = missing["sm_clock.of_most"] = NOT_BY_DRIVER
    return missing | _missing_of_busy(found.busy, missing)


def _missing_of_gpm(gpm: Gpm | None, path: str) -> dict[str, str]:
    fields = ("busy", "sm_active", "sm_occupancy", "fp32", "fp32_while_busy", "tensor", "dram")
    return {} if gpm is None else reasons({f"{path}.{name}": (getattr(gpm, name), NOT_BY_DRIVER) for name in fields})


def _missing_of_busy(busy: BusyCompared | None, missing: Mapping[str, str]) -> dict[str, str]:
    """Return why an instrument's busy fraction cannot be compared: for the reason for which it is missing."""
    if busy is None:
        return {"busy": NOT_COMPARED}
    found: dict[str, str] = {}
    for name, value, path in (("driver", busy.driver, "driver_busy.kernels"), ("gpm", busy.gpm, "gpm.kernels")):
        if value is None:
            reason = missing.get(path) or missing.get(f"{path}.busy", NO_SAMPLE_INSIDE)
            found |= {f"busy.{name}": reason, f"busy.{name}_difference": reason}
    return found


def _why_not_inside(recording: Recording, window: str) -> str:
    return NO_SAMPLE_INSIDE if recording.named(window) else NO_WINDOW.replace("kernels", window)


def _compared(recording: Recording, found: Device, kernels_busy: float) -> Device:
    gpm, bounds = found.gpm[KERNELS], map(bounds_of, recording.named(KERNELS))
    seconds = sum(each[1] - each[0] for each in bounds if each is not None) / 1e9
    busy = BusyCompared(kernels_busy, found.driver_busy[KERNELS], None if gpm is None else gpm.busy, seconds)
    return replace(found, busy=busy)


def _gpm(recording: Recording, name: str) -> Gpm | None:
    values = {
        field: mean(recording, name, counter)
        for field, counter in (
            ("busy", counters.GPM_BUSY),
            ("sm_active", counters.GPM_SM_ACTIVE),
            ("sm_occupancy", counters.GPM_OCCUPANCY),
            ("fp32", counters.GPM_FP32),
            ("tensor", counters.GPM_TENSOR),
            ("dram", counters.GPM_DRAM),
        )
    }
    return Gpm(**values) if any(value is not None for value in values.values()) else None


def _reasons(recording: Recording, name: str) -> Reasons | None:
    values, _ = gathered(recording, name, counters.THROTTLE)
    if not len(values):
        return None
    bits = values.astype(np.int64)
    known = {bit: REASONS.get(bit, f"reason {bit:#x}") for bit in (1 << place for place in range(53))}
    shares = {words: float(((bits & bit) != 0).mean()) for bit, words in known.items()}
    return Reasons({words: share for words, share in shares.items() if share}, float(((bits & ~CHOSEN) != 0).mean()))


def _most(recording: Recording, names: Sequence[str], counter: str) -> float | None:
    """Return the largest value at any time of the windows, their edges included, or None if there is none."""
    windows = [window for name in names for window in recording.named(name)]
    values = np.concatenate([np.zeros(0), *(samples_of(recording, window, counter).value for window in windows)])
    return float(values.max()) if len(values) else None


def _peaks_clock_hz(recording: Recording) -> float | None:
    return None if recording.run.peaks is None else recording.run.peaks.clock_hz


def _driver_period_s(recording: Recording) -> float | None:
    found = [samples_of(recording, window, counters.DRIVER_BUSY) for window in recording.windows]
    lengths = np.concatenate([np.zeros(0), *((each.time_ns - each.start_ns)[each.start_ns >= 0] for each in found)])
    return float(np.median(lengths)) / 1e9 if len(lengths) else None
