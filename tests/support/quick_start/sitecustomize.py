"""A program with this folder first on its path starts quickly: the CPU's peaks are known, and torch has no compiler.

Measuring the peaks takes most of a short script's CPU time. So does the import of `torch._dynamo`, which the first
optimizer of a script causes, though nothing is compiled. Where a start as a user's is tested, the folder is not there.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

PEAKS = Path(__file__).parents[1] / "known_peaks.py"


class Watcher:
    """Replaces the peaks once the module that has them is imported."""

    def find_spec(self, fullname: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        """Return no spec but that of this module."""
        if fullname != "tbdprof.hooks.probing":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def execute(module: ModuleType) -> None:
                run(module)
                _use_known_peaks()

            spec.loader.exec_module = execute  # type: ignore[method-assign]
        return spec


def _use_known_peaks() -> None:
    spec = importlib.util.spec_from_file_location("known_peaks", PEAKS)
    assert spec is not None
    assert spec.loader is not None
    known_peaks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(known_peaks)
    known_peaks.use()


class NoCompiler(ModuleType):
    """Stands for `torch._dynamo` where nothing is compiled."""

    @staticmethod
    def disable(function: Any, *_: Any, **__: Any) -> Any:
        """Return a function as it is."""
        return function

    @staticmethod
    def graph_break() -> None:
        """Do nothing: there is no graph."""


sys.meta_path.insert(0, Watcher())
sys.modules["torch._dynamo"] = NoCompiler("torch._dynamo")
