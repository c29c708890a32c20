"""The energy of training in the clean windows: from the device's energy counter, and from its power over time.

The counter gives the figure where there is one. It advances only every 20 to 100 ms, so a short window has no figure.
The integral of power over time (trapezoids) is a check beside it. A third figure is the average of the power samples,
divided by the units of work per second. It is that of Wang et al., "Benchmarking the Performance and Energy Efficiency
of AI Accelerators for AI Training" (arXiv:1909.06842, section 3.3, table 6).
"""

from collections.abc import Sequence

import numpy as np

from tbdprof.analysis.device.driver import NO_SAMPLE_INSIDE, why_no_device
from tbdprof.analysis.device.samples import Bounds, Samples, bounds_of, samples_of
from tbdprof.analysis.time.time_blocks import ratio_interval
from tbdprof.facts.arrays import Floats
from tbdprof.facts.counters import ENERGY, POWER
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.windows import CLEAN
from tbdprof.results.device import THE_GPU, THE_MODULE, Energy, Power, WindowEnergy
from tbdprof.results.found import Found, because
from tbdprof.results.reasons import NO_SAMPLES, ONE_WINDOW
from tbdprof.results.time import Throughput

LEAST_SECONDS = 2.0  # a shorter window gives no energy
COVERED = 0.99  # share of a window that samples must cover
STEADY_SECONDS = 60.0
CUT_SECONDS = 5.0
_MODULES = ("GH200", "GB200", "GB300")  # modules with a GPU and a CPU; seen on a GH200 (zeus, pull request 172)
INSTANT, AVERAGED, MIXED = "of an instant", "averages of the second before", "partly averages of the second before"
TOO_SHORT = f"no clean window lasted {LEAST_SECONDS:g} s, and the energy counter moves on in steps of up to 100 ms"
NOT_COVERED = "the samples do not reach over the clean windows"
NO_UNITS = "no units of work were counted"


def energy(recording: Recording, throughput: Throughput | None) -> Found[Energy | None]:
    """Return the energy of the clean windows, or why none of them has a sample of power or energy.

    The throughput says whether the energy of a sample is known.
    """
    clean = [window for window in recording.named(CLEAN) if bounds_of(window) is not None]
    power = _power(recording, clean)
    if power is None and not any(len(samples_of(recording, window, ENERGY)) for window in clean):
        return because(_why_no_energy(recording))
    measured = tuple(each for window in clean if (each := _measured(recording, window)) is not None)
    source, joules, units, seconds = _by_source(measured)
    has_units = len(joules) > 0 and bool((units > 0).all())
    found = Energy(
        windows=measured,
        source=source,
        covers=_covers(source, recording.run.device_name),
        joules_per_unit=float(joules.sum() / units.sum()) if has_units else None,
        interval=ratio_interval(joules, units) if has_units else None,
        watts=float(joules.sum() / seconds.sum()) if len(joules) else None,
        power=power,
        joules_per_unit_of_average_power=_of_average_power(power, clean),
    )
    has_samples = throughput is not None and throughput.samples_per_unit(recording.run) is not None
    return Found(found, _missing(recording, found, has_samples=has_samples))


def _why_no_energy(recording: Recording) -> str:
    asked = (ReasonFor.ENERGY_COUNTER, ReasonFor.POWER)
    refused = [recording.missing[name] for name in asked if name in recording.missing]
    return "; ".join(dict.fromkeys(refused)) or why_no_device(recording)


def _missing(recording: Recording, found: Energy, *, has_samples: bool) -> dict[str, str]:
    """Return the reason for each figure that is None."""
    missing: dict[str, str] = {}
    counter = recording.missing.get(ReasonFor.ENERGY_COUNTER, NOT_COVERED)
    power = recording.missing.get(ReasonFor.POWER, NOT_COVERED)
    if found.source is None:
        reason = NOT_COVERED if found.windows else TOO_SHORT
        missing |= dict.fromkeys(("source", "covers", "watts", "joules_per_unit"), reason)
    elif found.joules_per_unit is None:
        missing["joules_per_unit"] = NO_UNITS
    if found.interval is None:
        missing["ci95"] = missing.get("joules_per_unit", ONE_WINDOW)
    if found.joules_per_unit is None or not has_samples:
        missing["joules_per_sample"] = missing.get("joules_per_unit", NO_SAMPLES)
    if found.ratio is None:
        lacks_counter = any(each.counter_joules is None for each in found.windows)
        missing["counter_over_power"] = TOO_SHORT if not found.windows else counter if lacks_counter else power
    if found.power is None:
        missing["power"] = power if power != NOT_COVERED else NO_SAMPLE_INSIDE
    elif found.power.period_s is None:
        missing["power.period_s"] = "there is one sample alone"
    if found.joules_per_unit_of_average_power is None:
        missing["joules_per_unit_of_average_power"] = missing.get("power", NO_UNITS)
    rows = {"counter_joules": counter, "power_joules": power}
    lacking = (name for name in rows if any(getattr(each, name) is None for each in found.windows))
    return missing | {f"windows.{name}": rows[name] for name in lacking}


def counter_against_power(
    recording: Recording, window: Window, *, cut_s: float = CUT_SECONDS, least_s: float = STEADY_SECONDS
) -> WindowEnergy | None:
    """Return both energies of a long window without `cut_s` at each end, or None if less than `least_s` is left."""
    bounds = bounds_of(window)
    if bounds is None:
        return None
    inside = (bounds[0] + round(cut_s * 1e9), bounds[1] - round(cut_s * 1e9))
    return _between(recording, window, inside) if inside[1] - inside[0] >= least_s * 1e9 else None


def grown(samples: Samples, bounds: Bounds) -> float | None:
    """Return the growth of a counter between two times, or None if its samples do not cover them or it fell."""
    if not _reach(samples, bounds) or (np.diff(samples.value) < 0).any():
        return None
    begun, ended = np.interp(bounds, samples.time_ns, samples.value)
    return float(ended - begun)


def integrated(samples: Samples, bounds: Bounds) -> float | None:
    """Return a value's integral over seconds (trapezoids) between two times, or None if samples do not cover them."""
    if not _reach(samples, bounds):
        return None
    inside = samples.time_ns[samples.within(bounds)]
    times = np.unique(np.concatenate([[bounds[0]], inside, [bounds[1]]]))
    values = np.interp(times, samples.time_ns, samples.value)
    return float(((values[1:] + values[:-1]) / 2 * np.diff(times)).sum() / 1e9)


def _reach(samples: Samples, bounds: Bounds) -> bool:
    """Return whether samples cover an interval, except for a hundredth of it."""
    if len(samples) < 2:
        return False
    covered = min(int(samples.time_ns[-1]), bounds[1]) - max(int(samples.time_ns[0]), bounds[0])
    return covered >= COVERED * (bounds[1] - bounds[0])


def _measured(recording: Recording, window: Window) -> WindowEnergy | None:
    bounds = bounds_of(window)
    if bounds is None or bounds[1] - bounds[0] < LEAST_SECONDS * 1e9:
        return None
    return _between(recording, window, bounds)


def _between(recording: Recording, window: Window, bounds: Bounds) -> WindowEnergy:
    steps = window.table("step")
    inside = steps[(steps["start_ns"] >= bounds[0]) & (steps["end_ns"] <= bounds[1])]
    return WindowEnergy(
        seconds=(bounds[1] - bounds[0]) / 1e9,
        units=float(inside["units"].sum()),
        counter_joules=grown(samples_of(recording, window, ENERGY), bounds),
        power_joules=integrated(samples_of(recording, window, POWER), bounds),
    )


def _by_source(measured: Sequence[WindowEnergy]) -> tuple[str | None, Floats, Floats, Floats]:
    """Return the energy's source, and the joules, units and seconds of the windows that have it."""
    by_counter = [(each.counter_joules, each.units, each.seconds) for each in measured]
    by_power = [(each.power_joules, each.units, each.seconds) for each in measured]
    for source, rows in (("counter", by_counter), ("power", by_power)):
        known = np.array([row for row in rows if row[0] is not None], np.float64)
        if len(known):
            return source, known[:, 0], known[:, 1], known[:, 2]
    return None, np.zeros(0), np.zeros(0), np.zeros(0)


def _covers(source: str | None, device_name: str) -> str | None:
    """Return what the energy covers; the counter of a GPU that shares its module with a CPU counts both."""
    if source is None:
        return None
    return THE_MODULE if source == "counter" and any(name in device_name for name in _MODULES) else THE_GPU


def _power(recording: Recording, windows: Sequence[Window]) -> Power | None:
    """Return the power sampled between the first and the last step of each window."""
    pieces = [_within(recording, window) for window in windows]
    values = np.concatenate([np.zeros(0), *(piece.value for piece in pieces)])
    if not len(values):
        return None
    gaps = np.concatenate([np.zeros(0), *(np.diff(piece.time_ns) for piece in pieces)])
    averaged = np.concatenate([piece.start_ns >= 0 for piece in pieces])
    return Power(
        mean_watts=float(values.mean()),
        least_watts=float(values.min()),
        most_watts=float(values.max()),
        kind=AVERAGED if averaged.all() else MIXED if averaged.any() else INSTANT,
        period_s=float(np.median(gaps)) / 1e9 if len(gaps) else None,
    )


def _within(recording: Recording, window: Window) -> Samples:
    found, bounds = samples_of(recording, window, POWER), bounds_of(window)
    inside = found.within(bounds) if bounds is not None else np.zeros(len(found), bool)
    return Samples(found.start_ns[inside], found.time_ns[inside], found.value[inside])


def _of_average_power(power: Power | None, windows: Sequence[Window]) -> float | None:
    units = sum(float(window.table("step")["units"].sum()) for window in windows)
    bounds = [found for window in windows if (found := bounds_of(window)) is not None]
    seconds = sum(ended - begun for begun, ended in bounds) / 1e9
    return None if power is None or not units else power.mean_watts * seconds / units
