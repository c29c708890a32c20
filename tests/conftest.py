"""What holds for every test."""

import ast
import gc
import re
import signal
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FRAMEWORKS = ("torch", "mxnet", "tensorflow")
WITHIN = {"keras": "tensorflow"}  # what comes with a framework
MISSING = tuple(name for name in FRAMEWORKS if find_spec(name) is None)
# The files that take longest begin first: one that began last would be waited for alone. The order is that of CPU time.
SLOWEST = (
    "suite/test_cells.py",
    "launch/test_script.py",
    "test_observer.py",
    "suite/test_deep_speech2_parity.py",
    "judges/test_torch_training.py",
    "suite/test_inception_v3_parity.py",
    "suite/test_faster_rcnn_parity.py",
    "suite/test_resnet50_parity.py",
    "judges/test_torch_compiled.py",
    "suite/test_seq2seq_parity.py",
    "judges/test_feature_maps.py",
    "gpu/stand_in/on_tensorflow/test_tensorflow.py",
    "suite/test_a3c_cells.py",
    "cli/test_cli.py",
    "hooks/on_torch/test_kernels.py",
    "hooks/on_torch/test_hook.py",
    "cli/test_cli_runs.py",
    "test_examples.py",
    "hooks/on_mxnet/test_hook.py",
)
# Triton, which comes with torch for CUDA, breaks off the process if TensorFlow was imported before it.
if find_spec("triton") and find_spec("tensorflow"):
    import_module("triton")

collect_ignore = ["libraries"]  # `make test-libraries` names the folder: they need an environment of their own
HEADROOM, MOST_FREE_BYTES = "tbdprof.hooks.on_torch.session.malloc_headroom", 256 << 20
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")

# A shell without job control starts what runs in its background with SIGINT and SIGQUIT ignored, and nohup ignores
# SIGHUP. Every child would inherit that, and tests of signals send them.
USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
for number, handler in USUAL.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


class Lacking(pytest.Module):
    """A file of tests that cannot be imported without a framework that is not here."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Skip the file."""
        pytest.skip(f"needs {' and '.join(frameworks_of(self.path) & {*MISSING})}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip whole files of tests, with the reason, where what they import is not installed."""
    if not MISSING or not frameworks_of(module_path) & {*MISSING}:
        return None
    return Lacking.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slowest files, and skip what starts processes of a framework that is not here.

    The file or the case of such a test is named after the framework.
    """
    places = {TESTS / file: place for place, file in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    for item in items:
        file, _, name = item.nodeid.partition("::")
        words = {*re.split(r"[^a-z0-9]+", file), *re.split(r"[^a-z0-9]+", name.partition("[")[2])}
        for framework in words & {*MISSING}:
            item.add_marker(pytest.mark.skip(reason=f"needs {framework}"))


def pytest_collection_finish() -> None:
    """Leave what was imported out of every garbage collection: three frameworks are a million objects.

    tbdprof's own searches for models and tensors among Python's objects are quicker, too: they skip these.
    """
    gc.collect()
    gc.freeze()


@cache
def frameworks_of(path: Path) -> frozenset[str]:
    """Return the frameworks that a file of tests imports at its top, through the tests' own modules and tbdprof's."""
    found: set[str] = set()
    for name in imported(path):
        head, *rest = name.split(".")
        found |= {WITHIN.get(head, head)} & {*FRAMEWORKS}
        found |= {part.removeprefix("on_") for part in rest if head == "tbdprof"} & {*FRAMEWORKS}
        for place in (TESTS / "support" / f"{head}.py", (TESTS / Path(*name.split("."))).with_suffix(".py")):
            if place.is_file() and place != path:
                found |= frameworks_of(place)
    return frozenset(found)


def imported(path: Path) -> Iterable[str]:
    """Yield the modules, and what is taken of them, that a file imports at its top."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield str(node.module)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not NVIDIA_DRIVER.exists():
        pytest.skip("no NVIDIA driver on this machine")
    if HEADROOM in sys.modules:  # unlike a user's loop, a worker that trained many models has gigabytes of free heap
        sys.modules[HEADROOM]._MOST_FREE_BYTES = MOST_FREE_BYTES


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the processes that import a framework for a folder of tests: each takes some hundred megabytes."""
    if "forking" in sys.modules and (nextitem is None or nextitem.path.parent != item.path.parent):
        sys.modules["forking"].close_all()


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs the command line in this process: exit code, stdout, stderr."""
    from tbdprof.cli.main import main

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tbdprof", *words])
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return run
