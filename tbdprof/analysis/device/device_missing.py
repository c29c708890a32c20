"""Reasons for missing results of the device and its energy, by their paths in the report."""

from tbdprof.analysis.device.driver import COMPARED
from tbdprof.analysis.device.energy import LEAST_SECONDS
from tbdprof.facts.recording import Recording
from tbdprof.results.device import Device, Energy, Gpm
from tbdprof.results.kernels import Utilization
from tbdprof.results.reasons import (
    GPU_ONLY,
    NO_SAMPLES,
    NO_WINDOW,
    NOT_COMPARED,
    ONE_WINDOW,
)
from tbdprof.results.time import Throughput

NOT_SAMPLED = "nothing was sampled by the device's driver"
NO_SAMPLE_INSIDE = "no sample lies within the counted steps: the windows were shorter than the period of the sampling"
TOO_SHORT = f"no clean window lasted {LEAST_SECONDS:g} s, and the energy counter moves on in steps of up to 100 ms"
NOT_COVERED = "the samples do not reach over the clean windows"
NO_UNITS = "no units of work were counted"
MEASURED_PEAK = "the peak was measured, not looked up for a clock"
NO_CLOCK = "the clock was not sampled in the kernels windows"


def device_reasons(
    recording: Recording,
    device: Device | None,
    energy: Energy | None,
    utilization: Utilization | None,
    throughput: Throughput | None,
) -> dict[str, str]:
    """Return the reason for each null field of the device, its energy and the utilization at its clock."""
    on_cpu = recording.run.device == "cpu"
    nothing = GPU_ONLY if on_cpu else recording.missing.get("device", NOT_SAMPLED)
    found = _of_utilization(recording, utilization, on_cpu=on_cpu)
    found |= {"device": nothing} if device is None else _of_device(recording, device)
    found |= {"energy": _no_energy(recording, nothing)} if energy is None else _of_energy(recording, energy, throughput)
    return found


def _of_device(recording: Recording, device: Device) -> dict[str, str]:
    told = {
        "driver_busy": device.driver_busy,
        "gpm": device.gpm,
        "sm_clock": device.sm_clock,
        "memory_clock_hz": device.memory_clock_hz,
        "clock_reasons": device.reasons,
        "most_celsius": device.most_celsius,
    }
    refused = {"memory_clock_hz": "device.memory_clock", "most_celsius": "device.temperature"}
    found: dict[str, str] = {}
    for name, by_window in told.items():
        reason = recording.missing.get(refused.get(name, f"device.{name}"))
        for window, value in by_window.items():
            if value is None:
                found[f"device.{name}.{window}"] = reason or _not_inside(recording, window)
    for window in COMPARED:
        found |= _of_gpm(device.gpm[window], f"device.gpm.{window}")
    if device.driver_period_s is None:
        found["device.driver_busy.period_s"] = recording.missing.get(
            "device.driver_busy", "the driver gives no samples of its own, or there was time for one alone"
        )
    if device.most_sm_clock_hz is None:
        found["device.sm_clock.most_hz"] = found["of_most"] = "the driver does not report it"
    return found | _of_busy(device, found)


def _of_gpm(gpm: Gpm | None, path: str) -> dict[str, str]:
    if gpm is None:
        return {}
    fields = ("busy", "sm_active", "sm_occupancy", "fp32", "fp32_while_busy", "tensor", "dram")
    return {f"{path}.{field}": "the driver does not report it" for field in fields if getattr(gpm, field) is None}


def _of_busy(device: Device, found: dict[str, str]) -> dict[str, str]:
    if device.busy is None:
        return {"device.busy": NOT_COMPARED}
    reasons: dict[str, str] = {}
    for name, path in (("driver", "device.driver_busy.kernels"), ("gpm", "device.gpm.kernels")):
        if getattr(device.busy, name) is None:
            reason = found.get(path) or found.get(f"{path}.busy", NO_SAMPLE_INSIDE)
            reasons |= {f"device.busy.{name}": reason, f"device.busy.{name}_difference": reason}
    return reasons


def _not_inside(recording: Recording, window: str) -> str:
    return NO_SAMPLE_INSIDE if recording.named(window) else NO_WINDOW.replace("kernels", window)


def _no_energy(recording: Recording, nothing: str) -> str:
    told = [recording.missing[name] for name in ("energy.counter", "energy.power") if name in recording.missing]
    return "; ".join(dict.fromkeys(told)) or nothing


def _of_energy(recording: Recording, energy: Energy, throughput: Throughput | None) -> dict[str, str]:
    found: dict[str, str] = {}
    counter = recording.missing.get("energy.counter", NOT_COVERED)
    power = recording.missing.get("energy.power", NOT_COVERED)
    if energy.source is None:
        reason = NOT_COVERED if energy.windows else TOO_SHORT
        without = ("source", "covers", "watts", "joules_per_unit")
        found |= {f"energy.{name}": reason for name in without}
    elif energy.joules_per_unit is None:
        found["energy.joules_per_unit"] = NO_UNITS
    if energy.interval is None:
        found["energy.ci95"] = found.get("energy.joules_per_unit", ONE_WINDOW)
    if energy.joules_per_unit is None or throughput is None or throughput.samples_per_unit(recording.run) is None:
        found["energy.joules_per_sample"] = found.get("energy.joules_per_unit", NO_SAMPLES)
    if energy.ratio is None:
        some = [each for each in energy.windows if each.counter_joules is None]
        found["energy.counter_over_power"] = TOO_SHORT if not energy.windows else counter if some else power
    if energy.power is None:
        found["energy.power"] = power if power != NOT_COVERED else NO_SAMPLE_INSIDE
    elif energy.power.period_s is None:
        found["energy.power.period_s"] = "there is one sample alone"
    if energy.joules_per_unit_of_average_power is None:
        found["energy.joules_per_unit_of_average_power"] = found.get("energy.power", NO_UNITS)
    rows = {"counter_joules": counter, "power_joules": power}
    found |= {name: why for name, why in rows.items() if any(getattr(each, name) is None for each in energy.windows)}
    return found


def _of_utilization(recording: Recording, utilization: Utilization | None, *, on_cpu: bool) -> dict[str, str]:
    flop = None if utilization is None else utilization.flop
    if flop is None or flop.at_clock is not None:
        return {}
    measured = recording.run.peaks is None or recording.run.peaks.clock_hz is None
    reason = GPU_ONLY if on_cpu else MEASURED_PEAK if measured else recording.missing.get("device.sm_clock", NO_CLOCK)
    return {"utilization.mfu.at_clock": reason, "utilization.fp32_flop.at_clock": reason}
