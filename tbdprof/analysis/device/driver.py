"""The driver's account of the device, by window: how busy, at which clock and why not a higher one, how hot.

Busy is given in three ways: the kernels' own times (equation 1 of the TBD paper, in the kernels window), the driver's
samples, and GPM's. The last two are of all processes; they are compared where they were measured together. GPM's FP32
figure is over elapsed time: divided by GPM's own busy it compares with figures over active time.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tbdprof.analysis.device.samples import bounds_of, gathered, mean, samples_of
from tbdprof.facts import counters
from tbdprof.facts.recording import Recording
from tbdprof.facts.windows import CLEAN, KERNELS, WARMUP
from tbdprof.results.device import BusyCompared, Clock, Device, Gpm, Reasons

COMPARED = (CLEAN, KERNELS)

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
CHOSEN = 0x1 | 0x2 | 0x100  # nothing to do, or as somebody set it: not throttled


def device(recording: Recording, kernels_busy: float | None) -> Device | None:
    """Return what the driver told, None where it told nothing; `kernels_busy` is that of the kernels windows."""
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
        return None
    return found if kernels_busy is None else _compared(recording, found, kernels_busy)


def clock(recording: Recording, name: str) -> Clock | None:
    """Return the clock of the multiprocessors in the windows of a name, None where it was not sampled."""
    values, weights = gathered(recording, name, counters.SM_CLOCK)
    if not len(values):
        return None
    return Clock(float(np.average(values, weights=weights)), float(values.min()), float(values.max()))


def _compared(recording: Recording, found: Device, kernels_busy: float) -> Device:
    gpm, bounds = found.gpm[KERNELS], map(bounds_of, recording.named(KERNELS))
    seconds = sum(each[1] - each[0] for each in bounds if each is not None) / 1e9
    busy = BusyCompared(kernels_busy, found.driver_busy[KERNELS], None if gpm is None else gpm.busy, seconds)
    return replace(found, busy=busy)


def _gpm(recording: Recording, name: str) -> Gpm | None:
    told = {
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
    return Gpm(**told) if any(value is not None for value in told.values()) else None


def _reasons(recording: Recording, name: str) -> Reasons | None:
    values, _ = gathered(recording, name, counters.THROTTLE)
    if not len(values):
        return None
    bits = values.astype(np.int64)
    known = {bit: REASONS.get(bit, f"reason {bit:#x}") for bit in (1 << place for place in range(53))}
    shares = {words: float(((bits & bit) != 0).mean()) for bit, words in known.items()}
    return Reasons({words: share for words, share in shares.items() if share}, float(((bits & ~CHOSEN) != 0).mean()))


def _most(recording: Recording, names: Sequence[str], counter: str) -> float | None:
    """Return the largest value at any time of the windows, their edges with them; None: there is none."""
    windows = [window for name in names for window in recording.named(name)]
    values = np.concatenate([np.zeros(0), *(samples_of(recording, window, counter).value for window in windows)])
    return float(values.max()) if len(values) else None


def _peaks_clock_hz(recording: Recording) -> float | None:
    return None if recording.run.peaks is None else recording.run.peaks.clock_hz


def _driver_period_s(recording: Recording) -> float | None:
    found = [samples_of(recording, window, counters.DRIVER_BUSY) for window in recording.windows]
    lengths = np.concatenate([np.zeros(0), *((each.time_ns - each.start_ns)[each.start_ns >= 0] for each in found)])
    return float(np.median(lengths)) / 1e9 if len(lengths) else None
