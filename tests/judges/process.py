"""Runs a training loop in a process of its own, where tbdprof is there before the framework is.

A loop is a function that takes what stands for `tbdprof.profile`, trains within it as any script would, and returns
what it knows of itself without tbdprof's help. The parent has the reports, the loop's word and the last recording.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forking

TESTS = Path(__file__).parents[1]
PATH = os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS / "support")))
TIMEOUT_S = 120

Json = dict[str, Any]
Profile = Callable[..., Any]
Run = Callable[..., "Outcome"]  # module, loop → what came of it


@dataclass(frozen=True)
class Outcome:
    """What a process printed: the report document of each profile, the last one as text, and the loop's word."""

    reports: list[Json]
    text: str
    facts: Json
    recording: Path

    @property
    def report(self) -> Json:
        """Return the last profile's report."""
        return self.reports[-1]

    @property
    def memory(self) -> Json:
        """Return the memory part of the last report."""
        memory: Json = self.report["memory"]
        return memory


def outcome_of(module: str, loop: str, folder: Path, *, threads: int = 1) -> Outcome:
    """Run a loop of a module beside this one, `<framework>_…`, under tbdprof."""
    recording = folder / f"{module}-{loop}.tbd"
    recording.unlink(missing_ok=True)  # of an earlier try
    words = ["-m", "judges.process", module, loop, str(recording)]
    printed = run_python(module.partition("_")[0], words, threads=threads, prepared=True)
    return Outcome(printed["reports"], printed["text"], printed["facts"], recording)


def run_python(
    framework: str, words: list[str], *, threads: int = 1, prepared: bool = False, timeout_s: float = TIMEOUT_S
) -> Json:
    """Return the JSON object that a program of a framework prints; AssertionError with its stderr where it fails."""
    environment = {**os.environ, "PYTHONPATH": PATH, "OMP_NUM_THREADS": str(threads)}
    environment.pop("PYTEST_CURRENT_TEST", None)  # else each test would have an environment of its own
    done = forking.run(framework, words, env=environment, prepared=prepared, timeout_s=timeout_s)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    printed: Json = json.loads(done.stdout)
    return printed


def main(module: str, loop: str, recording: str) -> None:
    """Prepare, import the framework with the loop, run it, and print what came of it."""
    import known_peaks

    import tbdprof
    from tbdprof.report.json_report import document

    profilers = []

    def profile(*watched: object, **options: object) -> Any:
        profilers.append(tbdprof.profile(*watched, **{"warmup": 2, "steps": 2, **options}))
        return profilers[-1]

    if not module.endswith("_bounds"):  # which compare times with the peaks of this machine
        known_peaks.use()
    tbdprof.prepare(module.partition("_")[0])
    facts = getattr(importlib.import_module(f"judges.{module}"), loop)(profile)
    profilers[-1].save(recording)
    reports = [document(profiler.summary) for profiler in profilers]
    print(json.dumps({"reports": reports, "text": str(profilers[-1]), "facts": facts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
