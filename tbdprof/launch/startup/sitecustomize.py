"""Found by a profiled script's Python at its start: attach tbdprof, then do what this file stands in front of."""

import importlib.util
import json
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would slow every start
ORDER = os.environ.get("TBDPROF_ATTACH")


def _run(spec: ModuleSpec | None) -> ModuleType | None:
    """Run a module, known under its name where it is a package."""
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
        # By its place: a folder on the path would offer everything else that lies there to the script as well.
        _run(importlib.util.spec_from_file_location("tbdprof", json.loads(ORDER)["package"]))
        from tbdprof.launch.attach import attach

        attach()
finally:
    _run(PathFinder.find_spec("sitecustomize", sys.path))
