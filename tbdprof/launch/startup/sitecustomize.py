"""Attach tbdprof when a profiled script's Python starts, then run the `sitecustomize` that this file hides."""

import importlib.util
import json
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would slow every start
ORDER = os.environ.get("TBDPROF_ATTACH")


def _run(spec: ModuleSpec | None) -> ModuleType | None:
    """Run a module; register it under its name if it is a package."""
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    if spec.submodule_search_locations:
        sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


sys.path[:] = [entry for entry in sys.path if entry != HERE]
try:
    if ORDER is not None:
        # By its location: a folder on the path would also offer its other modules to the script.
        _run(importlib.util.spec_from_file_location("tbdprof", json.loads(ORDER)["package"]))
        from tbdprof.launch.attach import attach

        attach()
finally:
    _run(PathFinder.find_spec("sitecustomize", sys.path))
