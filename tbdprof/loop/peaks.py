"""Find the device's peaks: before the windows, again where other processes disturbed that, and for other precisions."""

from contextlib import suppress
from dataclasses import replace

from tbdprof.errors import UnavailableError
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.recorder import Recorder
from tbdprof.facts.records import Run
from tbdprof.facts.windows import KERNELS
from tbdprof.facts.work import precisions_of_products
from tbdprof.hooks import FrameworkHook
from tbdprof.loop.defect import defect_line
from tbdprof.loop.plan import NO_STEPS, Plan, Progress


def find(hook: FrameworkHook, recorder: Recorder, plan: Plan, progress: Progress) -> None:
    """Find the device's peaks if a window needs them and they are not known; a failure is the reason for none."""
    run, missing = recorder.recording.run, recorder.recording.missing
    if KERNELS not in plan.windows or run.peaks is not None or ReasonFor.PEAKS in missing:
        return
    progress("find the device's peak", 0, NO_STEPS)
    try:
        recorder.update(peaks=hook.peaks(_precisions(run)))
    except UnavailableError as error:
        missing[ReasonFor.PEAKS] = str(error)
    except Exception as error:  # noqa: BLE001 - no failure of tbdprof reaches the loop
        missing[ReasonFor.PEAKS] = defect_line("to find the device's peak", error)


def find_again(hook: FrameworkHook, recorder: Recorder, progress: Progress) -> None:
    """Measure again after the windows what other processes disturbed before them."""
    peaks = recorder.recording.run.peaks
    watched = any(len(window.table("step")) for window in recorder.recording.named(KERNELS))
    if not watched or peaks is None or not peaks.is_disturbed:
        return
    progress("find the device's peak again", 0, NO_STEPS)
    with suppress(UnavailableError):  # what was measured before holds
        recorder.update(peaks=hook.peaks(_precisions(recorder.recording.run)))


def find_of_products(hook: FrameworkHook, recorder: Recorder) -> None:
    """Find the peaks of the precisions that products were seen to have, which nobody had asked for."""
    recording = recorder.recording
    peaks = recording.run.peaks
    if peaks is None or peaks.clock_hz is not None:  # a table has those of all precisions
        return
    works = {int(work) for window in recording.named(KERNELS) for work in window.table("span")["work"]}
    seen = precisions_of_products(recording.strings[work] for work in works) - peaks.sources.keys()
    if not seen:
        return
    try:
        found = hook.peaks(sorted(seen))
        rates, sources = found.flops_per_s, {name: found.sources[name] for name in seen & found.sources.keys()}
    except UnavailableError as error:
        rates, sources = {}, dict.fromkeys(seen, str(error))
    rates, sources = {**rates, **peaks.flops_per_s}, {**sources, **peaks.sources}
    recorder.update(peaks=replace(peaks, flops_per_s=rates, sources=sources))


def _precisions(run: Run) -> list[str]:
    return list(dict.fromkeys([run.precision or "fp32", "fp32"]))
