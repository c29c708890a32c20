"""Choose and report whether a GPU may compute float32 matmuls and convolutions in TF32; restore the choice after a run.

Torch has two settings for this. The older one (`allow_tf32`) sets both. It raises if the newer one (`fp32_precision`,
per operation) was set to a different value. So a choice is made through the older setting and read from the newer one.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch._C import _get_fp32_precision_getter, _set_fp32_precision_setter

from tbdprof.facts.records import Operation

TF32 = "tf32"
_AMPERE = 8  # the first compute capability with TF32
_UNDECIDED = "none"  # a more general setting decides
_NAMES = {"matmul": "cuda.matmul", "conv": "cudnn.conv", "rnn": "cudnn.rnn"}
_OF = {Operation.CONVOLUTION: "conv", Operation.RECURRENT: "rnn"}


def choose(precision: str) -> Callable[[], None]:
    """Make a GPU compute float32 matmuls and convolutions in a precision ("tf32" is TF32); return what restores it."""
    before = {operation: _get_fp32_precision_getter("cuda", operation) for operation in _NAMES}
    older = _older()

    def put_back() -> None:
        if older is not None:
            _set_older(*older)
        for operation, value in before.items():
            _set_fp32_precision_setter("cuda", operation, value)

    allowed = precision == TF32
    if older is not None:
        _set_older(allowed, allowed)
    else:
        for operation in _NAMES:
            _set_fp32_precision_setter("cuda", operation, TF32 if allowed else "ieee")
    return put_back


def is_tf32(operation: Operation) -> bool:
    """Return whether a GPU computes float32 matmuls or convolutions of this kind in TF32."""
    asked = (("cuda", _OF.get(operation, "matmul")), ("cuda", "all"), ("generic", "all"))
    answers = (_get_fp32_precision_getter(backend, name) for backend, name in asked)
    return next((value for value in answers if value != _UNDECIDED), _UNDECIDED) == TF32


@lru_cache(maxsize=16)
def has_tf32(number: int | None) -> bool:
    """Return whether a GPU has TF32; `number` None means there is no GPU."""
    return number is not None and torch.cuda.get_device_capability(number)[0] >= _AMPERE


def flags() -> Mapping[str, str]:
    """Return the settings that decide how precisely and how reproducibly torch computes."""
    older = _older()
    return {
        **({} if older is None else {"float32_matmul_precision": torch.get_float32_matmul_precision()}),
        **({} if older is None else {"cudnn.allow_tf32": str(older[1])}),
        **{f"{name}.fp32_precision": _get_fp32_precision_getter("cuda", key) for key, name in _NAMES.items()},
        "cudnn.benchmark": str(torch.backends.cudnn.benchmark),
        "cudnn.deterministic": str(torch.backends.cudnn.deterministic),
        "deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()),
    }


def _older() -> tuple[bool, bool] | None:
    """Return what the older settings allow of cuBLAS and cuDNN, or None if they contradict the newer ones."""
    try:
        with _quiet():
            torch.get_float32_matmul_precision()
            return bool(torch.backends.cuda.matmul.allow_tf32), bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        return None


def _set_older(matmul: bool, cudnn: bool) -> None:
    with _quiet():
        torch.backends.cuda.matmul.allow_tf32 = matmul
        torch.backends.cudnn.allow_tf32 = cudnn


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch's warnings about its older settings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
