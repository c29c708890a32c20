"""The doctor reports what is so, and says why it does not know the rest."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tbdprof.doctor import checks, methods
from tbdprof.doctor.methods import Levels, Subject
from tbdprof.errors import UsageError
from tbdprof.hooks import FRAMEWORKS, about

ROOT = Path(__file__).parents[2]
# `json` stands in for a framework that is there.


def test_every_framework_with_a_hook_has_a_probe() -> None:
    assert all(about(name).probe and about(name).title for name in FRAMEWORKS)


def test_a_framework_that_imports_reports_version_and_gpus() -> None:
    found = checks.framework("json", "print('a log line'); print('1.2.3', 2)")

    assert found == checks.Framework("json", "1.2.3", 2)


def test_a_framework_that_is_not_there_comes_with_the_command() -> None:
    found = checks.framework("no_such_framework")

    assert found.reason == "not installed"
    assert found.command == "pip install 'tbdprof[no_such_framework]'"
    assert found.gpus is None


def test_a_failing_import_is_reported_by_its_last_line() -> None:
    found = checks.framework("json", "raise ImportError('it needs a friend')")

    assert found.reason == "ImportError: it needs a friend"
    assert found.command is None


def test_a_missing_system_library_comes_with_the_command() -> None:
    probe = "raise OSError('libquadmath.so.0: cannot open shared object file')"

    found = checks.framework("json", probe)

    assert found.command == "apt-get install -y libgomp1 libquadmath0"


def test_a_crash_at_import_is_contained_and_named() -> None:
    found = checks.framework("json", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")

    assert found.reason == "its import was killed by SIGSEGV"


def test_an_import_that_does_not_end_is_given_up() -> None:
    found = checks.framework("json", "import time; time.sleep(60)", limit_s=0.2)

    assert found.reason == "its import had not ended after 0.2 s"


def test_a_framework_records_a_gpu_itself_where_it_says_nothing_against_it() -> None:
    assert checks.client("json", "print('a log line'); print('')") is None
    assert checks.client("json", "print('this build cannot')") == "this build cannot"
    assert checks.client("json", "raise OSError('no library')") == "OSError: no library"


def test_a_library_that_cannot_be_loaded_is_absent() -> None:
    there, absent = checks.libraries(["libc.so.6", "libnosuchthing.so.1"])

    assert there == checks.Library("libc.so.6", present=True)
    assert not absent.present
    assert absent.command == "apt-get install -y libgomp1 libquadmath0"


def test_availability_names_what_to_type() -> None:
    reason = checks.availability("no_such_framework")

    assert reason == "not installed: pip install 'tbdprof[no_such_framework]'"
    assert checks.availability("json") is None


def test_where_numpy_1_has_no_wheel_mxnet_is_installed_without_what_it_asks_for() -> None:
    assert replace(about("mxnet"), without_dependencies=None).install("mxnet") == "pip install 'tbdprof[mxnet]'"
    assert (
        replace(about("mxnet"), without_dependencies="mxnet==1.9.1").install("mxnet")
        == "pip install 'tbdprof[mxnet]' && pip install --no-deps mxnet==1.9.1"
    )


def test_availability_imports_nothing() -> None:
    program = (
        "import sys; from tbdprof.doctor import checks; [checks.availability(n) for n in checks.FRAMEWORKS]; "
        "print(sorted({'torch', 'mxnet', 'tensorflow', 'numpy'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.strip() == "[]"


def test_an_examination_covers_what_was_asked() -> None:
    found = checks.examine(["no_such_framework"])

    assert [framework.name for framework in found.frameworks] == ["no_such_framework"]
    assert found.host.cores > 0
    assert [library.name for library in found.libraries] == list(about("mxnet").libraries)
    assert found.nvidia.reason is not None or found.nvidia.gpus
    assert [level.name for level in found.levels.found] == ["device", "activity", "analytic", "sampled", "counted"]
    assert all(level.answer for level in found.levels.found)


def test_the_device_that_is_asked_for_is_the_one_that_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    nothing = Levels((), None, None)
    monkeypatch.setattr(methods, "look_at", lambda index: Subject(f"cuda:{index}", "H200", index, 2))
    monkeypatch.setattr(methods, "examine", lambda own, index: asked.append(index) or nothing)

    assert checks.examine([], "cuda:1").looked_at == Subject("cuda:1", "H200", 1, 2)
    assert checks.examine([]).looked_at == Subject("cuda:0", "H200", 0, 2)
    assert asked == [1, 0]
    with pytest.raises(UsageError, match=r"^there is no cuda:2 here: the last one is cuda:1$"):
        checks.examine([], "cuda:2")


@pytest.mark.parametrize("device", ["cpu", "gpu", "cuda:", "cuda:x", "1"])
def test_what_is_no_name_of_a_gpu_is_refused(device: str) -> None:
    with pytest.raises(UsageError, match="give the GPU to look at as cuda:N"):
        checks.examine([], device)
