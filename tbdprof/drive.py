"""Drive a model of the suite through the profiler: prepare, build, warm up, record."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tbdprof import suite
from tbdprof.collect import host
from tbdprof.errors import DeviceMemoryError, UsageError
from tbdprof.hooks import FrameworkHook, Setting, load
from tbdprof.own_loop import listed, new_run
from tbdprof.plan import Plan, Progress, plan_for, silent
from tbdprof.profiler import Profiler
from tbdprof.recording import Recording, claim
from tbdprof.suite.workload import Config, Spec
from tbdprof.units import bytes_text


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
    output: Path | None = None
    force: bool = False

    def path(self) -> Path:
        """Return the file to record into; one of this second's name where none was asked for."""
        stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        return self.output or Path(f"{self.model}-{self.framework}-{stamp}.tbd")


def run(request: Request, path: Path, progress: Progress = silent) -> Recording:
    """Carry out a request, recording into a file.

    Raises UsageError for what cannot be run as asked, before anything is allocated; UnavailableError for a framework or
    device that is not there; DeviceMemoryError when the training runs out of memory, with the recording kept.
    """
    spec = suite.find(request.model)
    suite.check_framework(spec, request.framework)
    _refuse_what_cannot_fit(spec, _configured(spec, request, request.device))
    claim(path, force=request.force)
    threads = request.threads or max(1, int(host.usable_cores()))
    hook = load(request.framework)
    hook.prepare(Setting(request.device, threads, request.precision, request.seed))
    try:
        config = _configured(spec, request, hook.facts().device)
        return _record(request, path, progress, hook, spec, config)
    except (RuntimeError, MemoryError) as error:
        asked = hook.out_of_memory(error)
        if asked is None:
            raise
        kept = f"; what was recorded is in {path}" if path.exists() else ""
        raise DeviceMemoryError(f"out of memory ({asked}){kept}: try a smaller --batch-size") from error
    finally:
        hook.close()


def _configured(spec: Spec, request: Request, device: str) -> Config:
    return suite.configure(
        spec,
        batch_size=request.batch_size,
        precision=request.precision,
        seed=request.seed,
        device=device,
        options=request.options,
    )


def _record(
    request: Request,
    path: Path,
    progress: Progress,
    hook: FrameworkHook,
    spec: Spec,
    config: Config,
) -> Recording:
    facts = new_run(
        request.model,
        request.framework,
        unit=spec.unit,
        batch_size=config.batch_size,
        precision=config.precision,
        seed=config.seed,
        options=dict(config.options),
    )
    profiler = Profiler(hook, facts, _plan(request, hook), path=path, progress=progress)
    profiler.find_peaks()
    workload = suite.build(spec.name, request.framework, config)
    hook.watch(listed(workload.model), listed(workload.optimizer), listed(workload.inputs))
    with profiler:
        while profiler.active:
            profiler.step(workload.step())
    return profiler.recording


def _plan(request: Request, hook: FrameworkHook) -> Plan:
    device = hook.facts().device
    return plan_for(
        device,
        steps=request.steps,
        warmup=request.warmup,
        max_warmup=request.max_warmup,
        repeat=request.repeat,
    )


def _refuse_what_cannot_fit(spec: Spec, config: Config) -> None:
    if config.device.startswith("cuda"):
        return  # the card's memory is not known here; what does not fit there is told by its allocator
    needed, there = suite.estimate_bytes(spec, config), host.available_memory_bytes()
    if needed > there:
        raise UsageError(
            f"batch size {config.batch_size} of {spec.name} needs about {bytes_text(needed)} and "
            f"{bytes_text(there)} are available: choose a smaller --batch-size"
        )
