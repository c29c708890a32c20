"""The part of the machine-readable report that holds the driver's figures for the device, and the energy."""

from collections.abc import Mapping
from typing import Any

from tbdprof.results.device import (
    BusyCompared,
    Clock,
    Device,
    Energy,
    Gpm,
    Power,
    Reasons,
)
from tbdprof.results.summary import Summary

GPM = ("busy", "sm_active", "sm_occupancy", "fp32", "fp32_while_busy", "tensor", "dram")
BUSY = ("kernels", "driver", "driver_difference", "gpm", "gpm_difference", "seconds")

Json = dict[str, Any]


def device(found: Device | None) -> Json | None:
    """Return the driver's figures for the device, each by the name of its window."""
    if found is None:
        return None
    return {
        "driver_busy": {**found.driver_busy, "period_s": found.driver_period_s},
        "gpm": {window: _gpm(gpm) for window, gpm in found.gpm.items()},
        "busy": _busy(found.busy),
        "sm_clock": {
            **{window: _clock(clock, found.of_most(window)) for window, clock in found.sm_clock.items()},
            "most_hz": found.most_sm_clock_hz,
        },
        "memory_clock_hz": dict(found.memory_clock_hz),
        "clock_reasons": {window: _reasons(reasons) for window, reasons in found.reasons.items()},
        "most_celsius": dict(found.most_celsius),
    }


def energy(summary: Summary) -> Json | None:
    """Return the energy of the clean windows, and how it was measured."""
    found = summary.energy
    if found is None:
        return None
    throughput = summary.throughput
    units = None if throughput is None else throughput.samples_per_unit(summary.recording.run)
    per_unit = found.joules_per_unit
    return {
        "source": found.source,
        "covers": found.covers,
        "unit": summary.recording.run.unit,
        "joules_per_unit": per_unit,
        "ci95": None if found.interval is None else list(found.interval),
        "joules_per_sample": None if per_unit is None or not units else per_unit / units,
        "watts": found.watts,
        "counter_over_power": found.ratio,
        "power": _power(found.power),
        "joules_per_unit_of_average_power": found.joules_per_unit_of_average_power,
        "windows": _windows(found),
    }


def _gpm(found: Gpm | None) -> Json | None:
    return None if found is None else {name: getattr(found, name) for name in GPM}


def _busy(found: BusyCompared | None) -> Json | None:
    return None if found is None else {name: getattr(found, name) for name in BUSY}


def _clock(found: Clock | None, of_most: float | None) -> Json | None:
    if found is None:
        return None
    return {"mean_hz": found.mean_hz, "min_hz": found.least_hz, "max_hz": found.most_hz, "of_most": of_most}


def _reasons(found: Reasons | None) -> Mapping[str, Any] | None:
    return None if found is None else {"throttled": found.throttled, "shares": dict(found.by_reason)}


def _power(found: Power | None) -> Json | None:
    if found is None:
        return None
    return {
        "mean_watts": found.mean_watts,
        "min_watts": found.least_watts,
        "max_watts": found.most_watts,
        "samples": found.kind,
        "period_s": found.period_s,
    }


def _windows(found: Energy) -> list[Json]:
    return [
        {
            "seconds": each.seconds,
            "units": each.units,
            "counter_joules": each.counter_joules,
            "power_joules": each.power_joules,
        }
        for each in found.windows
    ]
