"""Attach to a process of an unchanged script, as ordered by the environment variable `TBDPROF_ATTACH`.

Watching begins when the script imports a framework; a script that imports none has no overhead. A training step ends
when an optimizer's step ends. If several optimizers step, those of the first one count (`loop.whose_steps`).

The processes that a launcher starts inherit the order, until one of them takes an optimizer step. A process that trains
with others claims its rank, and is recorded into a file of its own. Any other process removes the order's token, which
only one can do, and is recorded. The others detach at their own first step.

A process that is forked after the import of the framework inherits the watching. It follows the same rules, unless its
parent was being recorded at the fork.
"""

import atexit
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tbdprof.errors import TbdprofError, UnavailableError, visible
from tbdprof.facts.keys import RemarkOn
from tbdprof.launch.order import IMPORTED, RANK, VARIABLE, Said
from tbdprof.loop.defect import defect_line

if TYPE_CHECKING:
    from tbdprof.facts.file.placing import Claim
    from tbdprof.facts.ranks import Rank
    from tbdprof.hooks import FrameworkHook
    from tbdprof.loop.profiler import LoopProfiler
    from tbdprof.loop.whose_steps import WhoseSteps

ROOT = Path(__file__).parents[2]
_STANDARD = ("resource", "sqlite3")  # what the frameworks do not import
EARLY_AFTER = 1  # step; the first one of the script ended when the profiler began
_LAST = -1000  # priority of what is done at the end of a process of `multiprocessing`


def attach() -> None:
    """Follow the environment's order, unless a process is recorded already that trains alone."""
    order = json.loads(os.environ[VARIABLE])
    if not Path(order["token"]).exists():
        withdraw(order)
        return
    wanted = order["frameworks"]
    sys.meta_path.insert(0, ImportWatcher(wanted, lambda framework: Attachment(order, framework), order["imported_by"]))


def withdraw(order: dict[str, Any]) -> None:
    """Restore the environment as it was without tbdprof: processes started later do not attach."""
    os.environ.pop(VARIABLE, None)
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if order["startup"] in entries:
        entries.remove(order["startup"])
        os.environ["PYTHONPATH"] = os.pathsep.join(entries)
        if not entries:
            del os.environ["PYTHONPATH"]


class Attachment:
    """Watches one framework, and makes its profiler at the first optimizer step."""

    def __init__(self, order: dict[str, Any], framework: str) -> None:
        _refuse_hidden()
        with _own_packages():
            from tbdprof.hooks import Setting, load

            self._hook: FrameworkHook = load(framework)
        self._order = order
        self._framework = framework
        self._setting = Setting()
        self._profiler: LoopProfiler | None = None
        self._steps: WhoseSteps | None = None
        self._rank: Rank | None = None
        self._claimed: Claim | None = None  # of a rank's own file
        self._pid = os.getpid()
        self._hook.set_environment(self._setting)

    def imported(self) -> None:
        """Begin to watch, now that the framework is imported."""
        try:
            self._hook.prepare(self._setting)
            self._hook.watch([], [])
            self._hook.on_update(self._stepped)
            self._say_imported()
        except TbdprofError as error:
            _unwatched(error)
            return
        except Exception as error:  # noqa: BLE001 - the script must not notice
            _unwatched(defect_line("to watch the script", error))
            self.close()
            return
        atexit.register(self._ended)

    def _say_imported(self) -> None:
        """Let `launch.script` know which framework was seen, in case that nothing is recorded."""
        with suppress(OSError):
            self._beside_token(IMPORTED.format(self._framework)).touch()

    def close(self) -> None:
        """Detach, and do nothing at the end of the process."""
        atexit.unregister(self._ended)
        self._hook.close()
        self._release()

    def _stepped(self, optimizer: object) -> None:
        if os.getpid() != self._pid and not self._follows_fork():
            return
        try:
            self._count(optimizer)
        except TbdprofError as error:
            _unwatched(error)
            if self._profiler is not None:
                self._profiler.stop(str(error))
            self.close()
        except Exception as error:
            if self._profiler is not None:  # what the script's own work raised while the device was waited for
                raise
            _unwatched(defect_line("to begin to record", error))
            self.close()

    def _follows_fork(self) -> bool:
        """Return whether this forked process may be recorded: not one whose parent was when it forked."""
        from multiprocessing import util

        if self._profiler is not None:
            return False
        self._pid = os.getpid()
        # A process of `multiprocessing` ends without the functions of `atexit`; its own come last of all.
        util.Finalize(None, self._ended, exitpriority=_LAST)
        return True

    def _count(self, optimizer: object) -> None:
        if self._profiler is not None and self._steps is not None:
            if self._steps.count(optimizer):
                self._profiler.step()
                reason = None if self._profiler.active else self._profiler.recording.missing.get(RemarkOn.GIVEN_UP)
                if reason is not None:  # said once: no step is reported after the end
                    _unwatched(reason)
            elif self._steps.ended_by:
                self._profiler.stop(self._steps.ended_by, follows_another=True)
        elif self._is_first():
            from tbdprof.loop.whose_steps import WhoseSteps

            self._steps = WhoseSteps(optimizer)
            self._profiler = self._new_profiler()
            self._profiler.start()
        else:
            self.close()

    def _is_first(self) -> bool:
        """Return whether this process is the first of its rank to take an optimizer step; later ones do not attach.

        Without a rank it gives the token its own number as a name, otherwise it makes a file named after the rank: so
        `launch.script` knows which processes are recorded.
        """
        from tbdprof.hooks.ranks import own_rank

        withdraw(self._order)
        self._rank = own_rank(self._framework)
        try:
            if apart := self._rank_apart():
                self._beside_token(f"{RANK}{apart.number}").touch(exist_ok=False)
            else:
                Path(self._order["token"]).rename(self._beside_token(str(self._pid)))
        except (FileExistsError, FileNotFoundError):
            return False
        return True

    def _beside_token(self, name: str) -> Path:
        """Return a file by which `launch.script` learns of this process."""
        return Path(self._order["token"]).with_name(name)

    def _rank_apart(self) -> "Rank | None":
        """Return this process's rank if it has one, other than that in which `tbdprof run` was started itself."""
        return None if self._rank is None or self._order["rank"] == [*self._rank] else self._rank

    def _path(self) -> Path:
        """Return the file to record into, which `launch.script` claimed; a rank's own file is claimed here.

        Raise UsageError if that cannot be written.
        """
        from tbdprof.facts.file.placing import claim
        from tbdprof.facts.ranks import path_of

        if (apart := self._rank_apart()) is None:
            return Path(self._order["path"])
        self._claimed = claim(path_of(Path(self._order["named"]), apart.number), force=self._order["force"])
        atexit.unregister(self._ended)
        atexit.register(self._ended)  # at exit the last one registered is called first, and this one before the release
        return self._claimed.path

    def _release(self) -> None:
        if self._claimed is not None:
            self._claimed.release()

    def _ended(self) -> None:
        if os.getpid() != self._pid:  # of a forked child without a step: stopping the parent's profiler would hang
            return
        if self._profiler is None:
            self._hook.close()
        else:
            failure = _failure()
            self._profiler.stop(_end_of(failure), failure)
            self._release()
            self._leave_word()
            if isinstance(failure, KeyboardInterrupt):
                _end_by_interrupt()

    def _leave_word(self) -> None:
        """Write why no file was kept, if none was, into a file named after this process: `launch.script` reads it."""
        reason = "" if self._profiler is None else self._profiler.recording.missing.get(RemarkOn.FILE, "")
        if reason:
            with suppress(OSError):
                self._beside_token(str(self._pid)).write_text(visible(reason), encoding="utf-8")

    def _new_profiler(self) -> "LoopProfiler":
        from tbdprof.facts.ranks import facts_of
        from tbdprof.launch.choose_instruments import instruments_for
        from tbdprof.loop.new_run import new_run, script_name
        from tbdprof.loop.plan import Schedule, plan_for, together
        from tbdprof.loop.profiler import LoopProfiler

        name = script_name() or "script"
        said = Said(**self._order["said"])
        with _own_packages():
            run = new_run(name, self._framework, script=name, **said.facts, **facts_of(self._rank))
        device = self._hook.facts().device
        found = instruments_for(device, self._framework, is_together=self._rank is not None)
        plan = plan_for(device, Schedule(**self._order["schedule"]), windows=found.windows, early_after=EARLY_AFTER)
        plan = plan if self._rank is None else together(plan)
        path, per_step = self._path(), said.samples_per_step
        return LoopProfiler(self._hook, run, plan, path=path, instruments=found, per_step=per_step)


def _failure() -> BaseException | None:
    """Return the exception that ends the script, with its frames; a process of `multiprocessing` still handles it."""
    failure = sys.exc_info()[1]
    return getattr(sys, "last_value", None) if failure is None or isinstance(failure, SystemExit) else failure


def _end_of(failure: BaseException | None) -> str:
    return "the script ended first" if failure is None else f"the script ended by {type(failure).__name__}"


def _end_by_interrupt() -> None:
    """Make the process still end by SIGINT, as Python does after an uncaught interrupt.

    Python notes an interrupt when it ends the code of a string or file, and clears the note when other such code runs.
    Such code runs while a recording ends: `namedtuple` evaluates a string. So this function sets the note again.
    """
    with suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


class ImportWatcher(MetaPathFinder):
    """Notices the import of a framework, and acts before and after it."""

    def __init__(
        self,
        frameworks: Sequence[str],
        begin: Callable[[str], Attachment],
        imported_by: Mapping[str, str] | None = None,
    ) -> None:
        """Watch for frameworks, and for packages that import one (`imported_by`) and finish its import."""
        self._frameworks = frameworks
        self._imported_by = imported_by or {}
        self._begin = begin
        self._under_way: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a framework as usual; only the execution of its module shows that it is really imported."""
        framework = self._imported_by.get(fullname, fullname)
        if framework not in self._frameworks or framework in self._under_way:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            self._follow(framework, spec.loader)
        return spec

    def _follow(self, framework: str, loader: Loader) -> None:
        """Begin when the loader creates the module, before it is in `sys.modules`, and watch once it is executed."""
        create, execute = loader.create_module, loader.exec_module
        begun: list[Attachment] = []

        def begin_and_create(spec: ModuleSpec) -> ModuleType | None:
            begun[:] = self._attachments(framework)
            self._under_way.add(framework)
            return create(spec)

        def execute_and_watch(module: ModuleType) -> None:
            del loader.create_module, loader.exec_module
            try:
                execute(module)
            except BaseException:
                for attachment in begun:
                    attachment.close()
                raise
            finally:
                self._under_way.discard(framework)
            for attachment in begun:
                if framework in sys.modules and self in sys.meta_path:
                    sys.meta_path.remove(self)
                    attachment.imported()
                else:  # one framework imported another, which is now watched, or did not import the expected one
                    attachment.close()

        loader.create_module = begin_and_create  # type: ignore[method-assign]
        loader.exec_module = execute_and_watch  # type: ignore[method-assign]

    def _attachments(self, framework: str) -> list[Attachment]:
        """Return the attachment to a framework, or none if another one is watched or this one cannot be."""
        try:
            return [self._begin(framework)] if self in sys.meta_path else []
        except (ImportError, TbdprofError) as error:
            _unwatched(error)
        except Exception as error:  # noqa: BLE001 - the script must not notice
            _unwatched(defect_line("to begin to watch", error))
        return []


def _refuse_hidden() -> None:
    """Raise UnavailableError if a module of the script's own has the name of a standard one that tbdprof needs."""
    for name in _STANDARD:
        spec = find_spec(name)
        origin = spec.origin if spec is not None and spec.has_location else None
        if origin is not None and not origin.startswith(str(Path(os.__file__).parent)):
            raise UnavailableError(
                f"{origin} hides Python's own module {name}, which tbdprof needs: give it another name"
            )


@contextmanager
def _own_packages() -> Iterator[None]:
    """Let packages that tbdprof needs and the script's Python lacks be found beside tbdprof, after all others."""
    sys.path.append(str(ROOT))
    try:
        yield
    finally:
        if str(ROOT) in sys.path:
            del sys.path[-1 - sys.path[::-1].index(str(ROOT))]


def _unwatched(reason: object) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"tbdprof: {visible(str(reason))}; the script goes on unwatched\n")
