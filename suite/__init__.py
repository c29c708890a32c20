"""The models of the suite: find one, configure a run of it, and build it.

Each model is one folder here. Its `__init__` holds the facts (`SPEC`), and each of its `on_<framework>.py` modules
defines one function, `build(spec, config) -> Workload`. Nothing else names a model. The folders in `SHARED` and the
modules beside this one hold what the models share.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from tbdprof.errors import UsageError
from tbdprof.suite import switches
from tbdprof.suite.switches import flag
from tbdprof.suite.workload import SWITCH, Config, Option, Spec, Workload

MOST_SEED = 2**32 - 1  # the largest that every framework and numpy take
MOST = 10**9  # of samples in a batch, and of what an option counts
PRECISIONS: tuple[str, ...] = ("fp32", "tf32", "fp64", "bf16")
SHARED = frozenset({"checks", "classifier", "data"})  # folders that are not models


def names() -> list[str]:
    """Return the names of all models, sorted."""
    return sorted(
        module.name for module in pkgutil.iter_modules(__path__) if module.ispkg and module.name not in SHARED
    )


def find(name: str) -> Spec:
    """Return a model's facts; raises UsageError if there is no such model."""
    spec: Spec = _folder(name).SPEC
    return spec


def alone() -> set[str]:
    """Return the options of all models that may be given without a value, such as full-size."""
    options = (*switches.ALL.values(), *(option for name in names() for option in find(name).options))
    return {flag(option.name).lstrip("-") for option in options if option.choices == SWITCH}


def frameworks(name: str) -> tuple[str, ...]:
    """Return the frameworks a model is written for, sorted."""
    found = (module.name for module in pkgutil.iter_modules(_folder(name).__path__))
    written_for = (module.removeprefix("on_") for module in found if module.startswith("on_"))
    # A name such as on_torch_layers.py would be a part of on_torch.py, not a framework.
    return tuple(sorted(framework for framework in written_for if "_" not in framework))


def check_framework(spec: Spec, framework: str) -> None:
    """Raise UsageError if a model is not written for a framework."""
    carried = frameworks(spec.name)
    if framework not in carried:
        raise UsageError(f"{spec.name} is not written for {framework!r}: choose {' or '.join(carried)}")


def configure(
    spec: Spec,
    *,
    framework: str | None = None,
    batch_size: int | None = None,
    device: str = "cpu",
    precision: str = "fp32",
    seed: int = 0,
    options: Mapping[str, str | int] | None = None,
    data: Path | None = None,
) -> Config:
    """Return a checked and typed configuration; the model's defaults fill in what is not given.

    Options may be text, as on a command line; the framework's switches are options, too. Raises UsageError.
    """
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"batch size is {batch_size}: give 1 or more")
    if batch_size is not None and batch_size > MOST:
        raise UsageError(f"batch size is {batch_size}: give {MOST} or less")
    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision {precision!r}: choose {', '.join(PRECISIONS)}")
    if precision == "tf32" and device == "cpu":
        raise UsageError("tf32 is a format of GPUs: choose another --precision, or --device cuda")
    if seed < 0:
        raise UsageError(f"seed is {seed}: give 0 or more")
    if seed > MOST_SEED:
        raise UsageError(f"seed is {seed}: give {MOST_SEED} or less")
    return Config(
        batch_size=_default_batch(spec, device) if batch_size is None else batch_size,
        device=device,
        precision=precision,
        seed=seed,
        options=_typed_options(spec, framework, options or {}),
        data=data,
    )


def estimate_bytes(spec: Spec, config: Config) -> int:
    """Return about how many bytes a training step needs at least, so that a run that cannot fit is refused early."""
    per_sample = 0 if switches.is_on(config, switches.CHECKPOINTING) else spec.sample_bytes(config.options)
    if config.precision == "bf16":
        per_sample //= 2  # autocast halves the bytes of activations, not those of weights
    widening = 2 if config.precision == "fp64" else 1
    return widening * (spec.fixed_bytes + config.batch_size * per_sample)


def build(name: str, framework: str, config: Config) -> Workload:
    """Return a model with its optimizer and batch, ready to train; imports the framework.

    Raises UsageError if the model is not written for the framework or cannot run in it as configured.
    """
    spec = find(name)
    check_framework(spec, framework)
    module = importlib.import_module(f"{__name__}.{name}.on_{framework}")
    workload: Workload = module.build(spec, config)
    return workload


def _folder(name: str) -> ModuleType:
    known = names()
    if name not in known:
        near = get_close_matches(name, known)
        meant = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise UsageError(f"unknown model {name!r}{meant}: choose one of {', '.join(known)}")
    return importlib.import_module(f"{__name__}.{name}")


def _default_batch(spec: Spec, device: str) -> int:
    kind = device.partition(":")[0]
    # For "auto" or an unknown device, the framework's hook decides whether the device is available.
    return spec.default_batch.get(kind, spec.default_batch["cpu"])


def _typed_options(spec: Spec, framework: str | None, given: Mapping[str, str | int]) -> dict[str, str | int]:
    """Return the model's options with their defaults, and the switches that are not at theirs."""
    known = {option.name: option for option in spec.options}
    of_framework = {} if framework is None else {each.name: each for each in switches.of_model(spec, framework)}
    for name in given:
        if name not in known and name not in of_framework:
            if framework is not None:
                switches.refuse_lacking(spec, framework, name)
            every = [*known, *of_framework]
            has = f"choose {', '.join(map(flag, every))}" if every else "it has none"
            raise UsageError(f"{spec.name} has no option {flag(name)}: {has}")
    chosen = {name: _typed(of_framework[name], value) for name, value in given.items() if name in of_framework}
    switches.refuse_together(chosen)
    changed = {name: value for name, value in chosen.items() if value != of_framework[name].default}
    return {name: _typed(option, given.get(name, option.default)) for name, option in known.items()} | changed


def _typed(option: Option, value: str | int) -> str | int:
    if isinstance(option.default, str):
        if option.choices and value not in option.choices:
            raise UsageError(f"{flag(option.name)} is {value!r}: choose {' or '.join(option.choices)}")
        return str(value)
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(f"{flag(option.name)} is {value!r}: give a whole number of 1 or more")
    if number > MOST:
        raise UsageError(f"{flag(option.name)} is {value!r}: give a whole number of {MOST} or less")
    return number
