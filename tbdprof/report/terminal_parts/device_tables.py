"""The device as its driver sees it: energy, power, clocks and what limits them, busy fraction by each instrument."""

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from tbdprof.facts.units import percent_text
from tbdprof.report.terminal_parts.tables import LEAST_SHOWN, sheet, title_of
from tbdprof.results.device import (
    BUSY_APART,
    COMPARABLE_S,
    THE_MODULE,
    BusyCompared,
    Clock,
    Device,
    Energy,
    Gpm,
)
from tbdprof.results.summary import Summary

WARM = "yellow"


def view(summary: Summary, *, full: bool = False) -> list[RenderableType]:
    """Return the section, empty without the driver's figures; `full` adds the energy by average power."""
    rows: list[tuple[str, RenderableType]] = []
    if summary.energy is not None:
        rows += _energy(summary.energy, summary.recording.run.unit, full=full)
    if summary.device is not None:
        rows += _device(summary.device)
    return [Group(title_of("Device, as its driver sees it"), sheet(rows))] if rows else []


def _energy(found: Energy, unit: str, *, full: bool) -> Iterator[tuple[str, Text]]:
    if found.joules_per_unit is not None:
        joules = f"{_joules(found.joules_per_unit, unit)}{_interval(found)}"
        yield "energy", Text(f"{joules} in the clean windows, {_source(found)}", style=WARM if found.is_apart else "")
    if found.power is not None:
        power = found.power
        period = "" if power.period_s is None else f", one every {power.period_s * 1e3:.0f} ms"
        watts = f"{power.mean_watts:.0f} W on average, {power.least_watts:.0f} to {power.most_watts:.0f} W"
        yield "power", Text(f"{watts} (samples {power.kind}{period})")
    if full and found.joules_per_unit_of_average_power is not None:
        yield "by average power", Text(f"{_joules(found.joules_per_unit_of_average_power, unit)} (power ÷ throughput)")


def _joules(value: float, unit: str) -> str:
    """Return joules for one unit of work: `0.27 J/sample`."""
    return f"{value:.4g} J/{unit.removesuffix('s')}"


def _source(found: Energy) -> str:
    """Return where the energy is from, and how it compares with the other way to measure it."""
    source = "by the energy counter" if found.source == "counter" else "by power over time"
    if found.covers == THE_MODULE:
        source += f" of {THE_MODULE}"
    check = "" if found.ratio is None else f", {found.ratio:.3f} of its power over time"
    return source + check + (" (! more than 5 % apart)" if found.is_apart else "")


def _interval(found: Energy) -> str:
    return "" if found.interval is None else f" [{found.interval[0]:.4g}, {found.interval[1]:.4g}]"


def _device(found: Device) -> Iterator[tuple[str, Text]]:
    clocks = {window: clock for window, clock in found.sm_clock.items() if clock is not None}
    if clocks:
        yield "SM clock", Text(_clocks(clocks, found.most_sm_clock_hz))
    yield from _held_down(found)
    hottest = [value for value in found.most_celsius.values() if value is not None]
    if hottest:
        yield "temperature", Text(f"at most {max(hottest):.0f} °C")
    driver = {window: value for window, value in found.driver_busy.items() if value is not None}
    if driver:
        yield "driver busy", Text(_driver_busy(driver, found.driver_period_s))
    if found.busy is not None and (busy := _busy(found.busy)):
        yield "busy, compared", busy
    for window, gpm in found.gpm.items():
        if gpm is not None and (text := _gpm(gpm)):
            yield f"GPM, {window}", Text(text)


def _clocks(clocks: Mapping[str, Clock], most_hz: float | None) -> str:
    """Return the mean clock of each window, its range if it changed, and the highest possible clock."""
    parts = []
    for window, clock in clocks.items():
        moved = clock.most_hz - clock.least_hz >= 1e6
        span = f" ({clock.least_hz / 1e6:.0f}–{clock.most_hz / 1e6:.0f})" if moved else ""
        parts.append(f"{window} {clock.mean_hz / 1e6:.0f}{span}")
    return f"{', '.join(parts)} MHz" + (f"; at most {most_hz / 1e6:.0f} MHz" if most_hz else "")


def _held_down(found: Device) -> Iterator[tuple[str, Text]]:
    for window, reasons in found.reasons.items():
        if reasons is not None and reasons.throttled >= LEAST_SHOWN:
            each = ", ".join(f"{name} {percent_text(share)}" for name, share in reasons.by_reason.items())
            yield f"throttled, {window}", Text(f"{percent_text(reasons.throttled)} of the samples: {each}", style=WARM)


def _driver_busy(by_window: Mapping[str, float], period_s: float | None) -> str:
    shares = ", ".join(f"{window} {percent_text(value)}" for window, value in by_window.items())
    return shares + (f" (a sample every {period_s * 1e3:.0f} ms)" if period_s else " (polled)")


def _busy(busy: BusyCompared) -> Text | None:
    compared = [
        f"{name} {percent_text(value)} ({100 * difference:+.1f} points)"
        for name, value, difference in (
            ("driver", busy.driver, busy.driver_difference),
            ("GPM", busy.gpm, busy.gpm_difference),
        )
        if value is not None and difference is not None
    ]
    if not compared:
        return None
    line = f"kernels' own times {percent_text(busy.kernels)}, {', '.join(compared)} in the kernels window"
    if not busy.is_comparable:
        return Text(f"{line}: too short to compare, it takes {COMPARABLE_S:.0f} s of kernels windows")
    if not busy.is_apart:
        return Text(line)
    return Text(f"{line}\n! they differ by more than {100 * BUSY_APART:.0f} points", style=WARM)


def _gpm(gpm: Gpm) -> str:
    values = {
        "busy": gpm.busy,
        "SMs active": gpm.sm_active,
        "warps": gpm.sm_occupancy,
        "FP32": gpm.fp32,
        "FP32 while busy": gpm.fp32_while_busy,
        "tensor": gpm.tensor,
        "DRAM": gpm.dram,
    }
    shown = ", ".join(f"{name} {percent_text(value)}" for name, value in values.items() if value is not None)
    return f"{shown} (level: device)" if shown else ""
