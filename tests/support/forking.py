"""Run programs in processes that begin with a framework imported: one process imports it, and forks for each program.

    done = forking.run("torch", [str(PROGRAM), "attached"], env=environment)

Most of a short program's CPU time is the import of its framework. In a fork the framework has allocated nothing and
started no thread, and nothing of tbdprof is imported. If `prepared`, tbdprof is imported, and its hook has set the
environment before the framework's import, as `tbdprof.prepare` does it; the program's first hook is that one.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

# What is imported besides the framework: torch's optimizers and Keras import these when they are first used.
WITH = {"torch": ("torch", "torch._dynamo"), "mxnet": ("mxnet",), "tensorflow": ("tensorflow", "keras")}
OF_TBDPROF = ("tbdprof.launch.own_loop", "tbdprof.report.json_report")


class Importer:
    """A process that imports a framework, and forks for each program."""

    def __init__(self, framework: str, env: Mapping[str, str], *, prepared: bool) -> None:
        how = "prepared" if prepared else "plain"
        self._process = subprocess.Popen(
            [sys.executable, __file__, framework, how],
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a program has its own
            text=True,
            start_new_session=True,  # so that it can be killed with its forks
        )

    def run(self, words: Sequence[str], folder: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run a program, which is a file or `-m` and a module; raise TimeoutExpired if it takes too long."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        out, err = (Path(_printed().name, name) for name in ("out", "err"))
        request = {"words": list(words), "folder": str(folder), "out": str(out), "err": str(err)}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            raise subprocess.TimeoutExpired(list(words), timeout_s, output=out.read_text(), stderr=err.read_text())
        code = self._process.stdout.readline()
        assert code, f"{' '.join(words)}: the process that imports the framework has ended"
        return subprocess.CompletedProcess(list(words), int(code), out.read_text(), err.read_text())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def kill(self) -> None:
        """End the process and its forks at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.close()


_OPEN: dict[tuple[str, bool, frozenset[tuple[str, str]]], Importer] = {}


def run(
    framework: str,
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    folder: Path = Path(),
    prepared: bool = False,
    timeout_s: float = 240,
) -> subprocess.CompletedProcess[str]:
    """Return what a program printed, and its exit code; `env` is the environment of the import, too.

    If it may have several threads, it has a process of its own: libraries start them at import, and a fork has none.
    """
    if env.get("OMP_NUM_THREADS") != "1":
        return subprocess.run(
            [sys.executable, *words], env=dict(env), cwd=folder, capture_output=True, text=True, timeout=timeout_s
        )
    key = framework, prepared, frozenset(env.items())
    if key not in _OPEN:
        _OPEN[key] = Importer(framework, env, prepared=prepared)
    try:
        return _OPEN[key].run(words, folder.resolve(), timeout_s)
    except BaseException:
        _OPEN.pop(key).kill()
        raise


@cache
def _printed() -> tempfile.TemporaryDirectory[str]:
    """Return the folder for what programs print: one, because a program's open files have these names."""
    return tempfile.TemporaryDirectory(prefix="forking-")


def close_all() -> None:
    """End every process that forks: each holds some hundred megabytes."""
    while _OPEN:
        _OPEN.popitem()[1].close()


atexit.register(close_all)


def _import(framework: str, how: str) -> None:
    """Import a framework, and check that it can be forked."""
    if how == "prepared":
        _set_environment(framework)
    if framework == "mxnet":
        import numpy as np

        vars(np).setdefault("bool", bool)
    for name in WITH[framework]:
        importlib.import_module(name)
    if how == "prepared":
        for name in (
            *OF_TBDPROF,
            *(f"tbdprof.hooks.on_{framework}.{window}.window" for window in ("memory", "kernels")),
        ):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a fork never looks for garbage among what was imported, and so shares its pages
    threads = [*Path("/proc/self/task").iterdir()]
    assert len(threads) == 1, f"{framework} has started {len(threads) - 1} threads, which a fork does not have"


def _set_environment(framework: str) -> None:
    from tbdprof.hooks import Setting

    module: Any = importlib.import_module(f"tbdprof.hooks.on_{framework}")
    make, made = module.hook, [module.hook()]
    made[0].set_environment(Setting())
    module.hook = lambda: made.pop() if made else make()


def _serve() -> dict[str, Any] | None:
    """Fork for each request; return it in the fork, and None in the parent when there are no more."""
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            request: dict[str, Any] = json.loads(line)
            return request
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


def _become(request: dict[str, Any]) -> None:
    """Run a program in this process as its own."""
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, request["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, request["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        file = os.open(path, flags, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0)  # noqa: SIM115 - what the parent read of the requests stays in the old one
    os.chdir(request["folder"])
    program, *words = request["words"]
    if program == "-m":
        module, *words = words
        sys.path[0] = request["folder"]
        sys.argv = [module, *words]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(program).parent)
        sys.argv = [program, *words]
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    _import(*sys.argv[1:])
    if asked := _serve():
        _become(asked)
