"""Names of numpy that MXNet 1.9.1 reads as it is imported, and that numpy 2 took away.

They are given back for the time of the import alone: no other code finds them. Only imports that tbdprof makes itself
are helped. A script imports MXNet as it does without tbdprof, or fails in the same way: a profiler changes nothing of
what it observes. This module imports nothing of tbdprof.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

_FINANCIAL = ("mirr", "npv", "pmt", "ppmt", "pv", "rate")  # numpy 1.20 left functions of these names that raise


@contextmanager
def given_back() -> Iterator[None]:
    """Give numpy the names that MXNet reads and it lacks, and take them away again; numpy 1 lacks none."""
    wanted = _of_numpy_1() if int(np.__version__.partition(".")[0]) > 1 else {}
    lacking = {name: value for name, value in wanted.items() if name not in vars(np)}
    vars(np).update(lacking)
    try:
        yield
    finally:
        for name in lacking:
            vars(np).pop(name, None)


def _of_numpy_1() -> dict[str, Any]:
    """Return what numpy 1 had under the names."""
    numbers = {
        "PZERO": 0.0,
        "NZERO": -0.0,
        "PINF": np.inf,
        "NINF": -np.inf,
        "Inf": np.inf,
        "NAN": np.nan,
        "NaN": np.nan,
    }
    aliases = {"alltrue": np.all, "sometrue": np.any, "product": np.prod, "round_": np.round}
    functions = {"in1d": _in1d, "msort": _msort, "trapz": vars(np).get("trapezoid")}
    return numbers | aliases | functions | {name: _financial(name) for name in _FINANCIAL}


def _in1d(first: Any, second: Any, **options: Any) -> Any:
    """Return for each element of an array, in one dimension, whether it is in the other."""
    return np.isin(np.ravel(first), second, **options)


def _msort(array: Any) -> Any:
    """Return a copy that is sorted along its first axis."""
    return np.sort(array, axis=0)


def _financial(name: str) -> Callable[..., NoReturn]:
    def absent(*arguments: Any, **options: Any) -> NoReturn:
        raise RuntimeError(f"numpy has no {name} since version 1.20: it is in the package numpy-financial")

    return absent
