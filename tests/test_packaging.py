"""A wheel holds everything, and importing tbdprof costs next to nothing."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("tbdprof", "hooks", "suite")
HEAVY = {"torch", "mxnet", "tensorflow", "numpy"}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the sources, with nothing that was built."""
    copy = tmp_path_factory.mktemp("checkout")
    for folder in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignored)
    for file in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(copy: Path) -> list[str]:
    """Return the names in a wheel that was built from a copy of the sources."""
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(copy / "out")]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(copy)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = (copy / "out").glob("tbdprof-*.whl")
    return zipfile.ZipFile(built).namelist()


def test_the_wheel_holds_every_module_once(wheel: list[str]) -> None:
    sources = {
        (path if folder == "tbdprof" else Path("tbdprof", path)).as_posix()
        for folder in FOLDERS
        for path in (file.relative_to(ROOT) for file in (ROOT / folder).rglob("*.py"))
    }
    packed = [name for name in wheel if name.endswith(".py")]

    assert sorted(packed) == sorted(sources)


def test_the_wheel_says_that_it_is_typed_and_has_the_command(wheel: list[str]) -> None:
    assert "tbdprof/py.typed" in wheel
    assert any(name.endswith(".dist-info/entry_points.txt") for name in wheel)


def test_the_wheel_holds_the_templates_of_pages(wheel: list[str]) -> None:
    folder = Path("tbdprof/report/page/templates")

    packed = {name for name in wheel if name.startswith(f"{folder.as_posix()}/")}

    assert packed == {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).iterdir()}


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler here")
def test_the_wheel_holds_the_native_code_where_there_is_a_c_compiler(wheel: list[str]) -> None:
    assert "tbdprof/hooks/on_mxnet/native/_events.abi3.so" in wheel


def test_without_a_c_compiler_the_installation_goes_on(copy: Path, tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "build_ext", "--build-lib", str(tmp_path), "--build-temp", str(tmp_path)]
    done = subprocess.run(command, cwd=copy, env={**os.environ, "CC": "/nowhere/cc"}, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "/nowhere/cc" in done.stdout + done.stderr  # it was asked for
    assert list(tmp_path.rglob("*.so")) == []


def test_hooks_and_suite_are_one_package_with_tbdprof() -> None:
    for folder in ("hooks", "suite"):
        assert (ROOT / "tbdprof" / folder).resolve() == ROOT / folder


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after running code."""
    listing = "import json; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    command = [sys.executable, "-c", f"import sys\n{code}\n{listing}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_tbdprof_imports_no_framework_and_no_numpy() -> None:
    loaded = loaded_by("import tbdprof")

    assert "tbdprof" in loaded
    assert loaded & HEAVY == set()


def test_the_help_imports_no_framework_and_no_numpy() -> None:
    ask = "sys.argv = ['tbdprof', '--help']\nfrom tbdprof.cli.main import main"

    loaded = loaded_by(f"{ask}\ntry:\n    main()\nexcept SystemExit as done:\n    assert not done.code")

    assert "click" in loaded
    assert loaded & HEAVY == set()
