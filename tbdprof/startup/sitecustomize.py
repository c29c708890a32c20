"""Found by a profiled script's Python at its start: attach tbdprof, then do what this file stands in front of."""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would slow every start


def _next() -> None:
    """Run the sitecustomize that would have been found without this one."""
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if entry != HERE])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if "TBDPROF_ATTACH" in os.environ:
    from tbdprof.attach import attach

    attach()
sys.path[:] = [entry for entry in sys.path if entry != HERE]
_next()
