"""Attach to the process of an unchanged script, as told by the environment variable `TBDPROF_ATTACH`.

Watching begins when the script imports a framework; it costs a script that imports none nothing. A training step is
taken to end where an optimizer's step ends; where several optimizers step, the first one's steps count.
"""

import atexit
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tbdprof.hooks import FrameworkHook
    from tbdprof.profiler import Profiler

VARIABLE = "TBDPROF_ATTACH"


def attach() -> None:
    """Follow the environment's order, once: processes started from this one are left alone."""
    order = json.loads(os.environ.pop(VARIABLE))
    from tbdprof.hooks import FRAMEWORKS

    wanted = FRAMEWORKS if order["framework"] is None else (order["framework"],)
    sys.meta_path.insert(0, ImportWatcher(wanted, lambda framework: Attachment(order, framework)))


class Attachment:
    """Watches one framework, and makes its profiler at the first optimizer step."""

    def __init__(self, order: dict[str, Any], framework: str) -> None:
        from tbdprof.hooks import Setting, load

        self._order = order
        self._framework = framework
        self._setting = Setting()
        self._hook: FrameworkHook = load(framework)
        self._profiler: Profiler | None = None
        self._first_optimizer = 0
        self._pid = os.getpid()
        self._hook.set_environment(self._setting)

    def imported(self) -> None:
        """Begin to watch, now that the framework is there."""
        from tbdprof.errors import TbdprofError

        try:
            self._hook.prepare(self._setting)
        except TbdprofError as error:
            sys.stderr.write(f"tbdprof: {error}; the script runs unwatched\n")
            return
        self._hook.watch([], [])
        self._hook.on_update(self._stepped)
        atexit.register(self._ended)

    def _stepped(self, optimizer: object) -> None:
        if self._profiler is None:
            self._first_optimizer = id(optimizer)
            self._profiler = self._new_profiler()
            self._profiler.start()
        elif id(optimizer) == self._first_optimizer:
            self._profiler.step()

    def _ended(self) -> None:
        if os.getpid() != self._pid:  # a forked child ends: ending the parent's profiler in it would hang
            return
        if self._profiler is None:
            self._hook.close()
        else:
            self._profiler.stop("the script ended first")

    def _new_profiler(self) -> "Profiler":
        from tbdprof.own_loop import new_run, script_name
        from tbdprof.plan import plan_for
        from tbdprof.profiler import Profiler

        name = script_name() or "script"
        run = new_run(name, self._framework, script=name, watched_since="before the first allocation")
        asked = {key: self._order[key] for key in ("steps", "warmup", "max_warmup", "repeat")}
        plan = plan_for(self._hook.facts().device, **asked)
        return Profiler(self._hook, run, plan, path=Path(self._order["path"]))


class ImportWatcher(MetaPathFinder):
    """Notices the first import of a framework: something is done before, and something after it."""

    def __init__(self, frameworks: Sequence[str], begin: Callable[[str], Attachment]) -> None:
        self._frameworks = frameworks
        self._begin = begin

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a framework as ever, and have its module's execution followed by `imported`."""
        if fullname not in self._frameworks:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            attachment = self._begin(fullname)
            follow(spec.loader, attachment.imported)
        return spec


def follow(loader: Loader, action: Callable[[], None]) -> None:
    """Do something once a loader has executed its module."""
    execute = loader.exec_module

    def execute_and_act(module: ModuleType) -> None:
        del loader.exec_module
        execute(module)
        action()

    loader.exec_module = execute_and_act  # type: ignore[method-assign]
