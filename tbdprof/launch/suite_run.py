"""Run a model of the suite under the profiler: prepare, build, warm up, record."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from tbdprof import suite
from tbdprof.collect import host
from tbdprof.collect.gpu import context
from tbdprof.collect.gpu.context import Taken
from tbdprof.errors import DataError, DeviceMemoryError, DoesNotFitError, TbdprofError
from tbdprof.facts.counters import DATA_WAIT
from tbdprof.facts.file.placing import Claim, claim
from tbdprof.facts.recording import Recording
from tbdprof.facts.units import bytes_text
from tbdprof.hooks import FrameworkHook, about
from tbdprof.launch import batch_search
from tbdprof.launch.choose_instruments import instruments_for
from tbdprof.launch.prepared import SMALLER, kept_in, prepared
from tbdprof.launch.request import RunRequest
from tbdprof.loop.new_run import listed, new_run
from tbdprof.loop.plan import NO_STEPS, Progress, silent
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.suite.data import datasets, loading
from tbdprof.suite.workload import Concurrent, Config, Spec, Workload


def run(request: RunRequest, path: Path, progress: Progress = silent, *, tries_smaller: bool = True) -> Recording:
    """Carry out a request, and record into a file. If it runs out of memory, look for a batch that fits (by default).

    Raise UsageError if the request cannot be run, before anything is allocated. Raise UnavailableError if the framework
    or device is not there. Raise DeviceMemoryError if the training runs out of memory, and DataError if it meets a
    broken file; both keep the recording.
    """
    spec = suite.find(request.model)
    suite.check_framework(spec, request.framework)
    if request.data is not None:
        datasets.look(spec, request.data)
    _refuse_what_cannot_fit(spec, request.config())
    claimed = claim(path, force=request.force)
    config: Config | None = None
    try:
        with claimed:
            beneath = _beneath(request, progress)
            with prepared(request.framework, request.setting(), claimed) as hook:
                config = request.config(hook.facts().device)
                return _record(request, path, progress, hook, spec, config, beneath)
    except DataError as error:
        raise DataError(f"{error}{kept_in(claimed)}") from error
    except DeviceMemoryError as error:
        if config is None or not tries_smaller:
            raise
        raise _with_a_batch(error, request, config, claimed, progress) from error


def _with_a_batch(
    error: DeviceMemoryError, request: RunRequest, config: Config, claimed: Claim, progress: Progress
) -> DeviceMemoryError:
    """Find a batch size that fits, keep the trials in the recording, and return the error that names the size."""
    progress("try smaller batches", 0, NO_STEPS)
    if error.keeps is None:
        attempt = batch_search.in_fresh_processes(replace(request, device=config.device))
        fit = batch_search.search(config.batch_size, attempt)
    else:
        fit = batch_search.Fit(None, {}, None, error.keeps)
    if claimed.is_kept:
        with suppress(TbdprofError):  # the file could not be written before
            batch_search.keep(fit, claimed.path)
    found = SMALLER if fit.batch_size is None else f"try --batch-size {fit.batch_size}"
    return DeviceMemoryError(str(error).removesuffix(SMALLER) + found)


def _beneath(request: RunRequest, progress: Progress) -> Taken | None:
    """Return the memory below the framework's allocator, measured before its import, or None on a CPU."""
    kind, _, number = request.device.partition(":")
    if kind == "cpu" or not context.has_driver():
        return None
    progress("measure what a context takes of the GPU", 0, NO_STEPS)
    return context.measure(int(number) if number.isdigit() else 0, request.framework, about(request.framework).context)


def _record(
    request: RunRequest,
    path: Path,
    progress: Progress,
    hook: FrameworkHook,
    spec: Spec,
    config: Config,
    beneath: Taken | None,
) -> Recording:
    facts = new_run(
        request.model,
        request.framework,
        unit=spec.unit,
        sample_unit=spec.sample_unit,
        batch_size=config.batch_size,
        precision=config.precision,
        seed=config.seed,
        options=_options(config),
        **({} if beneath is None else beneath.facts()),
    )
    waited = {DATA_WAIT: lambda: loading.waited.seconds}
    found = instruments_for(
        hook.facts().device,
        request.framework,
        waited,
        power_period_s=request.power_period_ms / 1e3,
        progress=progress,
    )
    found = replace(found, missing={**found.missing, **({} if beneath is None else beneath.missing)})
    plan = request.plan(hook.facts().device, found.windows, spec, config)
    workload: Workload | None = None

    def pause() -> None:
        if isinstance(workload, Concurrent):
            workload.pause()

    profiler = LoopProfiler(hook, facts, plan, path=path, progress=progress, instruments=found, pause=pause)
    profiler.find_peaks()
    progress(f"build {spec.name}", 0, NO_STEPS)
    workload = suite.build(spec.name, request.framework, config)
    hook.watch(listed(workload.model), listed(workload.optimizer), listed(workload.inputs))
    with _ended(workload), profiler:
        while profiler.active:
            profiler.step(workload.step())
    return profiler.recording


@contextmanager
def _ended(workload: Workload) -> Iterator[None]:
    """End a workload's own threads when the block ends."""
    try:
        yield
    finally:
        if isinstance(workload, Concurrent):
            workload.close()


def _options(config: Config) -> dict[str, str | int]:
    """Return the model's options, and the name of its data folder without the path, which would reveal the user."""
    if config.data is None:
        return dict(config.options)
    given = Path(os.path.abspath(config.data))  # noqa: PTH100 (resolve() would reveal what a link points at)
    return dict(config.options) | {"data": given.name}


def _refuse_what_cannot_fit(spec: Spec, config: Config) -> None:
    if config.device.startswith("cuda") or (config.device == "auto" and context.has_driver()):
        return  # the card's memory is not known here; its allocator reports what does not fit
    needed, there = suite.estimate_bytes(spec, config), host.available_memory_bytes()
    if needed > there:
        raise DoesNotFitError(
            f"batch size {config.batch_size} of {spec.name} needs about {bytes_text(needed)} and "
            f"{bytes_text(there)} are available: choose a smaller --batch-size"
        )
