"""Ways to open a device's counters: cupti-python if it is installed and new enough, else the libcupti found here."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tbdprof.collect.gpu import cuda_driver, nvidia
from tbdprof.collect.pm import CuptiError, Sampler, statuses, with_cupti_python, with_libcupti

Opener = Callable[[int], Sampler]

# CUPTI's answers if it needs a context of the device. A context takes some hundred MiB, so it is made only then.
_WITHOUT_CONTEXT = (2, 3, 13, statuses.NOT_INITIALIZED, statuses.UNKNOWN)


def opened(device: int, cuda: Any = None, openers: Iterable[Opener] | None = None) -> Sampler:
    """Open a device's counters; if no way works, raise CuptiError with the reason of the last one tried.

    `cuda` can replace the driver's library.
    """
    cuda = _driver() if cuda is None else cuda
    _check("cuInit", cuda.cuInit(0))
    failed = CuptiError("dlopen", statuses.SUCCESS, "libcupti is not installed: pip install 'tbdprof[cuda]'")
    for opener in _openers() if openers is None else openers:
        try:
            return _opened(opener, device, cuda)
        except CuptiError as error:
            failed = error
    raise failed


def _opened(opener: Opener, device: int, cuda: Any) -> Sampler:
    try:
        return opener(device)
    except CuptiError as error:
        if error.status not in _WITHOUT_CONTEXT:
            raise
        _make_context(cuda, device)
        return opener(device)


def _openers() -> list[Opener]:
    """Return the ways that exist here, the best first; libcupti loads libraries beside it by bare name."""
    path, found = nvidia.cupti(), list[Opener]()
    try:
        library = None if path is None else with_libcupti.load(path)
    except OSError as error:
        raise CuptiError("dlopen", statuses.SUCCESS, f"libcupti cannot be loaded: {error}") from error
    modules = with_cupti_python.find()
    if modules is not None:
        found.append(partial(with_cupti_python.CuptiPythonSampler, modules))
    if library is not None:
        found.append(partial(with_libcupti.LibcuptiSampler, library))
    return found


def _driver() -> Any:
    try:
        return cuda_driver.library()
    except OSError as error:
        raise CuptiError("dlopen", statuses.SUCCESS, f"there is no CUDA driver: {error}") from error


def _make_context(cuda: Any, device: int) -> None:
    try:
        cuda_driver.make_context(cuda, device)
    except OSError as error:
        raise CuptiError("cuDevicePrimaryCtxRetain", statuses.SUCCESS, f"the CUDA driver refuses: {error}") from error


def _check(call: str, status: int) -> None:
    if status:
        raise CuptiError(call, statuses.SUCCESS, f"the CUDA driver refuses: {call} returns {status}")
