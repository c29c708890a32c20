"""What a contributor adds is one folder or one file, as CONTRIBUTING.md says."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parent.parent
FIXTURE = ROOT / "tests" / "fixtures" / "format-3.tbd"
FRAMEWORK = """
from fakes import FakeHook
from tbdprof.hooks.about import About

ABOUT = About(title="Dummy", probe="print('1.0', 0)")


def hook():
    return FakeHook()
"""
ANALYSIS = """
from dataclasses import dataclass


@dataclass(frozen=True)
class Steps:
    by_window: tuple[tuple[str, int], ...]


def steps(recording):
    return Steps(tuple((window.name, len(window.table("step"))) for window in recording.windows))
"""
REPORT = """
from tbdprof.results.summary import Summary


def render(summary: Summary) -> str:
    return f"{summary.recording.run.model} ran on {summary.recording.run.device}"
"""


def run(program: str) -> list[str]:
    """Return what a program prints, a line each; it finds the tests' helpers."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support")))
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def put(root: Path, path: str, source: str) -> str:
    """Write a file below a folder, and return the folder as Python text."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(source)
    return repr(str(root))


def test_a_framework_is_one_folder_and_its_name(tmp_path: Path) -> None:
    folder = put(tmp_path, "on_dummy/__init__.py", FRAMEWORK)

    lines = run(f"""
        from tbdprof import hooks

        hooks.__path__.append({folder})
        hooks.FRAMEWORKS = (*hooks.FRAMEWORKS, "dummy")

        import tbdprof
        from tbdprof.doctor import checks

        with tbdprof.profile(framework="dummy", warmup=1, steps=2) as prof:
            while prof.active:
                prof.step(4)
        print(prof.recording.run.complete, prof.summary.throughput is not None)
        print(str(prof).splitlines()[0])
        print(checks.FRAMEWORKS[-1], checks.framework("dummy").reason)
    """)

    assert lines[0] == "True True"
    assert lines[1].startswith("-c")
    assert lines[2] == "dummy not installed"


def test_a_model_is_one_folder(tmp_path: Path) -> None:
    put(tmp_path, "dummy/__init__.py", (ROOT / "suite" / "a3c" / "__init__.py").read_text().replace('"a3c"', '"dummy"'))
    folder = put(tmp_path, "dummy/on_torch.py", "def build(spec, config):\n    return spec, config\n")

    lines = run(f"""
        from tbdprof import suite

        suite.__path__.append({folder})
        print("dummy" in suite.names(), suite.frameworks("dummy"))
        spec, config = suite.build("dummy", "torch", suite.configure(suite.find("dummy")))
        print(spec.name, config.batch_size)
    """)

    assert lines == ["True ('torch',)", "dummy 5"]


def test_an_analysis_and_a_report_are_one_file_each(tmp_path: Path) -> None:
    put(tmp_path, "analysis/steps.py", ANALYSIS)
    folder = put(tmp_path, "report/headline.py", REPORT)

    lines = run(f"""
        from pathlib import Path

        import tbdprof
        from tbdprof import analysis, report

        analysis.__path__.append(str(Path({folder}) / "analysis"))
        report.__path__.append(str(Path({folder}) / "report"))
        from tbdprof.analysis.steps import steps
        from tbdprof.report.headline import render

        recording = tbdprof.load({str(FIXTURE)!r})
        print(steps(recording).by_window[0])
        print(render(tbdprof.summarize(recording)))
    """)

    assert lines[0].startswith("('warmup', ")
    assert " ran on " in lines[1]
