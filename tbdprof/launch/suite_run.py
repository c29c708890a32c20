"""Drive a model of the suite through the profiler: prepare, build, warm up, record."""

import os
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from tbdprof import suite
from tbdprof.collect import host
from tbdprof.collect.gpu import context
from tbdprof.collect.gpu.context import Taken
from tbdprof.errors import DataError, DeviceMemoryError, TbdprofError, UsageError
from tbdprof.facts.counters import DATA_WAIT
from tbdprof.facts.recording import Recording, claim
from tbdprof.facts.units import bytes_text
from tbdprof.hooks import FrameworkHook, Setting, load
from tbdprof.launch import batch_search
from tbdprof.loop import instruments
from tbdprof.loop.own_loop import listed, new_run
from tbdprof.loop.plan import NO_STEPS, Plan, Progress, plan_for, silent
from tbdprof.loop.profiler import Profiler
from tbdprof.suite.data import datasets, loading
from tbdprof.suite.workload import Concurrent, Config, Spec, Workload

SMALLER = "try a smaller --batch-size"


@dataclass(frozen=True, slots=True)
class Request:
    """What to run, and how."""

    model: str
    framework: str
    device: str = "auto"
    batch_size: int | None = None
    precision: str = "fp32"
    threads: int | None = None
    steps: int | None = None
    warmup: int | None = None
    max_warmup: int | None = None
    repeat: int = 1
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)
    data: Path | None = None  # folder of the model's data set; None: synthetic
    output: Path | None = None
    force: bool = False
    power_period_ms: int = 100  # between two samples of a GPU's power

    def path(self) -> Path:
        """Return the file to record into; one of this second's name where none was asked for."""
        stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        return self.output or Path(f"{self.model}-{self.framework}-{stamp}.tbd")


def run(request: Request, path: Path, progress: Progress = silent) -> Recording:
    """Carry out a request, recording into a file.

    Raises UsageError for what cannot be run as asked, before anything is allocated; UnavailableError for a framework or
    device that is not there; DeviceMemoryError when the training runs out of memory, and DataError when it meets a
    broken file, both with the recording kept.
    """
    spec = suite.find(request.model)
    suite.check_framework(spec, request.framework)
    if request.data is not None:
        datasets.look(spec, request.data)
    _refuse_what_cannot_fit(spec, _configured(spec, request, request.device))
    claim(path, force=request.force)
    beneath = _beneath(request, progress)
    setting = Setting(request.device, threads(request.threads), request.precision, request.seed)
    config: Config | None = None
    try:
        with prepared(request.framework, setting, path) as hook:
            config = _configured(spec, request, hook.facts().device)
            return _record(request, path, progress, hook, spec, config, beneath)
    except DataError as error:
        raise DataError(f"{error}{_kept(path)}") from error
    except DeviceMemoryError as error:
        if config is None:
            raise
        raise _with_a_batch(error, request, config, path, progress) from error


@contextmanager
def prepared(framework: str, setting: Setting, path: Path | None = None) -> Iterator[FrameworkHook]:
    """Prepare a framework until the block ends; yield its hook.

    Raises DeviceMemoryError where the block runs out of memory, which tells of the recording at `path`.
    """
    hook = load(framework)
    hook.prepare(setting)
    try:
        yield hook
    except Exception as error:  # each framework has classes of its own
        asked = hook.out_of_memory(error)
        if asked is None:
            raise
        failure = DeviceMemoryError(f"out of memory ({asked}){_kept(path)}: {SMALLER}")
        traceback.clear_frames(error.__traceback__)  # which hold the model
        failure.keeps = hook.give_back_memory()
        raise failure from error
    finally:
        hook.close()


def _with_a_batch(
    error: DeviceMemoryError, request: Request, config: Config, path: Path, progress: Progress
) -> DeviceMemoryError:
    """Find a batch size that fits, keep what was tried in the recording, and return the error that says it."""
    progress("try smaller batches", 0, NO_STEPS)
    if error.keeps is None:
        attempt = batch_search.in_fresh_processes(request.model, request.framework, threads(request.threads), config)
        fit = batch_search.search(config.batch_size, attempt)
    else:
        fit = batch_search.Fit(None, {}, None, error.keeps)
    with suppress(TbdprofError):  # of a file that could not be written before
        batch_search.keep(fit, path)
    found = SMALLER if fit.batch_size is None else f"try --batch-size {fit.batch_size}"
    return DeviceMemoryError(str(error).removesuffix(SMALLER) + found)


def _beneath(request: Request, progress: Progress) -> Taken | None:
    """Measure what lies beneath the framework's allocator, before the framework is there; None on a CPU."""
    kind, _, number = request.device.partition(":")
    if kind == "cpu" or not context.has_driver():
        return None
    progress("measure what a context takes of the GPU", 0, NO_STEPS)
    return context.measure(int(number) if number.isdigit() else 0, request.framework)


def threads(asked: int | None) -> int:
    """Return the number of threads that was asked for, by default one a core the process may use."""
    return asked or max(1, int(host.usable_cores()))


def _kept(path: Path | None) -> str:
    return f"; what was recorded is in {path}" if path is not None and path.exists() else ""


def _configured(spec: Spec, request: Request, device: str) -> Config:
    return suite.configure(
        spec,
        batch_size=request.batch_size,
        precision=request.precision,
        seed=request.seed,
        device=device,
        options=request.options,
        data=request.data,
    )


def _record(
    request: Request,
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
    found = instruments.of(
        hook.facts().device,
        request.framework,
        waited,
        power_period_s=request.power_period_ms / 1e3,
        progress=progress,
    )
    found = replace(found, missing={**found.missing, **({} if beneath is None else beneath.missing)})
    plan = _plan(request, hook, found.windows, spec, config)
    workload: Workload | None = None

    def pause() -> None:
        if isinstance(workload, Concurrent):
            workload.pause()

    profiler = Profiler(hook, facts, plan, path=path, progress=progress, instruments=found, pause=pause)
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
    """Return the model's options, and what it read: the folder's name alone, as its path would tell of the user."""
    if config.data is None:
        return dict(config.options)
    given = Path(os.path.abspath(config.data))  # noqa: PTH100 (resolve() would tell what a link points at)
    return dict(config.options) | {"data": given.name}


def _plan(request: Request, hook: FrameworkHook, windows: tuple[str, ...], spec: Spec, config: Config) -> Plan:
    return plan_for(
        hook.facts().device,
        steps=request.steps,
        warmup=request.warmup,
        max_warmup=request.max_warmup,
        repeat=request.repeat,
        windows=windows,
        period=1 if config.data else spec.period,
        watched_steps=spec.watched_steps(config.options),
    )


def _refuse_what_cannot_fit(spec: Spec, config: Config) -> None:
    if config.device.startswith("cuda") or (config.device == "auto" and context.has_driver()):
        return  # the card's memory is not known here; what does not fit there is told by its allocator
    needed, there = suite.estimate_bytes(spec, config), host.available_memory_bytes()
    if needed > there:
        raise UsageError(
            f"batch size {config.batch_size} of {spec.name} needs about {bytes_text(needed)} and "
            f"{bytes_text(there)} are available: choose a smaller --batch-size"
        )
