"""Lets the tests' programs import MXNet beside numpy 2, where a script has to give numpy its older names itself.

Where numpy 1 has no wheel, the Makefile names this module in the environment's own `.pth` file, so that every process
of the tests imports it. It acts when MXNet is imported, and the names stay.
"""

import importlib.util
import sys
from contextlib import ExitStack
from importlib.abc import MetaPathFinder
from pathlib import Path

NAMES = Path(__file__).parents[3] / "hooks" / "on_mxnet" / "numpy_names.py"


class GivesNames(MetaPathFinder):
    """Acts at the first module within MXNet, finds none, and is asked no more."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.startswith("mxnet."):
            sys.meta_path.remove(self)
            spec = importlib.util.spec_from_file_location("numpy_names", NAMES)
            assert spec is not None
            assert spec.loader is not None
            names = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(names)
            KEPT.enter_context(names.given_back())


KEPT = ExitStack()
sys.meta_path.insert(0, GivesNames())
