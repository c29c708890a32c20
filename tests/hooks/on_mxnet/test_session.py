"""The file of MXNet's own profiler, whatever the script did with that before."""

import importlib.util
import os
import textwrap
from pathlib import Path

import forking
import pytest

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("mxnet is not installed", allow_module_level=True)

import numpy as np

vars(np).setdefault("bool", bool)  # MXNet reads it

from tbdprof.hooks.on_mxnet.session.session import read_events  # noqa: E402

HERE = Path(__file__).parent
HEAD, TAIL = '{\n    "traceEvents": [\n', '\n\n    ],\n    "displayTimeUnit": "ms"\n}\n'
EVENT = '\n    {\n        "name": "a],[",\n        "ph": "B"\n    }'
PROGRAM = """
    from tbdprof.hooks import Setting
    from tbdprof.hooks.on_mxnet import hook
    from tbdprof.facts.records import Strings
    watched = hook()
    watched.set_environment(Setting())
    import sys
    sys.path.insert(0, {here!r})
    import mxnet as mx
    import kernel_scenarios
    import scenarios
    {before}
    watched.attach()
    model = scenarios.net(active=True)
    {broken}
    window = kernel_scenarios.record(watched, model, *scenarios.training(model))
    names = [window.strings[row["name"]] for row in window.spans]
    print(sum(name == "_backward_FullyConnected" for name in names), window.missing)
"""
RAN = """mx.profiler.set_config(profile_all=True, filename={file!r})
    mx.profiler.set_state("run")
    mx.nd.ones(3).wait_to_read()
    mx.profiler.set_state("stop")"""


def run(folder: Path, before: str = "", broken: str = "") -> str:
    """Have the script do something, record a window of kernels, and return what that printed."""
    source = textwrap.dedent(PROGRAM.format(here=str(HERE), before=before, broken=broken))
    file = folder / "program.py"
    file.write_text(f"import tempfile\ntempfile.tempdir = {str(folder)!r}\n{source}")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    settings = {"PYTHONPATH": str(HERE.parents[2]), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    done = forking.run("mxnet", [str(file)], env={**kept, **settings}, folder=folder, prepared=True, timeout_s=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("head", ["", HEAD])
@pytest.mark.parametrize("tail", ["\n", TAIL])
@pytest.mark.parametrize(("listed", "count"), [("", 0), (EVENT, 1), (f",\n{EVENT}", 1), (f"{EVENT},\n{EVENT}", 2)])
def test_events_are_read_with_or_without_their_frame(head: str, tail: str, listed: str, count: int) -> None:
    assert read_events(head + listed + tail) == [{"name": "a],[", "ph": "B"}] * count


@pytest.mark.parametrize(
    "before",
    [
        "mx.profiler.set_config(aggregate_stats=True)",
        "mx.profiler.set_config(profile_all=True, continuous_dump=True, filename='own.json')",
        RAN.format(file="own.json"),
    ],
)
def test_kernels_are_reported_where_the_script_set_the_profiler_up_before(tmp_path: Path, before: str) -> None:
    count, _, missing = run(tmp_path, before).partition(" ")

    assert int(count) > 0
    assert missing == "{}"


def test_a_file_that_cannot_be_read_is_a_reason_and_the_loop_goes_on(tmp_path: Path) -> None:
    broken = "from tbdprof.hooks.on_mxnet.session import session; session.read_events = lambda text: [{}]"

    assert run(tmp_path, broken=broken) == "0 {'kernels': \"the file MXNet's profiler wrote could not be read\"}"
