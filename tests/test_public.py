"""The public names are what they are said to be."""

import subprocess
import sys
from importlib import metadata
from types import ModuleType

import pytest

import tbdprof
from tbdprof.hooks import FRAMEWORKS, load


def test_every_public_name_can_be_had_and_none_is_hidden():
    assert sorted(tbdprof.__all__) == dir(tbdprof)
    for name in set(tbdprof.__all__) - {"__version__"}:
        assert getattr(tbdprof, name).__module__.startswith("tbdprof.")


def test_the_version_is_the_installed_one():
    assert tbdprof.__version__ == metadata.version("tbdprof")


def test_help_and_inspection_need_no_framework():
    without = "import sys; sys.modules.update(dict.fromkeys(['torch', 'mxnet', 'tensorflow', 'keras'])); "
    look = "import inspect, tbdprof; help(tbdprof); print([name for name, _ in inspect.getmembers(tbdprof)])"

    done = subprocess.run([sys.executable, "-c", without + look], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert "class Profiler(tbdprof.loop.profiler.LoopProfiler)" in done.stdout
    assert done.stdout.splitlines()[-1] == str(sorted(tbdprof.__all__))


def test_a_name_that_is_not_there_is_an_attribute_error():
    assert not hasattr(tbdprof, "nonsense")
    assert not hasattr(tbdprof.integrations, "nonsense")


def test_the_callback_of_a_library_needs_no_further_import(monkeypatch: pytest.MonkeyPatch):
    there = ModuleType("lightning")
    monkeypatch.setitem(sys.modules, "tbdprof.integrations.lightning", there)  # the library itself is not needed here

    assert tbdprof.integrations.lightning is there


def test_every_framework_has_a_hook_of_its_name():
    assert [load(name).name for name in FRAMEWORKS] == list(FRAMEWORKS)
