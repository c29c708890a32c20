"""What a context takes, by processes that only make one: their figures by hand, and everything that can refuse."""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_nvml import NO_PERMISSION, FakeCuda, FakeNvml

from tbdprof.collect import fresh
from tbdprof.collect.gpu import context
from tbdprof.collect.gpu.context import CONTEXT, LIBRARIES, Taken, measure
from tbdprof.errors import UnavailableError
from tbdprof.hooks import about
from tbdprof.loop.new_run import new_run

MIB = 1 << 20
MODULE = about("torch").context


class Processes:
    """Fresh processes that answer what was arranged, by the last part of the module they run."""

    def __init__(self, alone: Mapping[str, Any] | str, torch: Mapping[str, Any] | str = "not there") -> None:
        self.answers = {"tbdprof.collect.gpu.context": alone, "tbdprof.hooks.on_torch.context": torch}

    def __call__(self, module: str, index: int, limit_s: float) -> Mapping[str, Any]:
        assert index == 3
        answer = self.answers[module]
        if isinstance(answer, str):
            raise UnavailableError(answer)
        return answer


def report(before: int, after: int, process: int | None = None, others: int | None = None, held: int = 0) -> Any:
    figures = {"total": 1000, "before": before, "after": after, "process": process, "others": others, "held": held}
    return {name: None if size is None else size * MIB for name, size in figures.items()}


def test_a_context_and_libraries_are_what_processes_took() -> None:
    found = measure(3, "torch", MODULE, Processes(report(100, 600, 500, 40), report(100, 722, held=22)))

    assert found == Taken(1000 * MIB, 100 * MIB, 40 * MIB, 500 * MIB, 100 * MIB)
    assert found.facts() == {
        "device_bytes": 1000 * MIB,
        "used_before_bytes": 100 * MIB,
        "others_before_bytes": 40 * MIB,
        "context_bytes": 500 * MIB,
        "libraries_bytes": 100 * MIB,
    }
    assert new_run("toy", "torch", **found.facts()).context_bytes == 500 * MIB


def test_where_others_came_meanwhile_the_process_own_figure_counts() -> None:
    assert measure(3, "torch", MODULE, Processes(report(100, 900, 500))).context_bytes == 500 * MIB
    within_what_may_differ = Processes(report(100, 650, 500))
    assert measure(3, "torch", MODULE, within_what_may_differ).context_bytes == 550 * MIB


def test_where_others_left_meanwhile_there_is_a_reason_and_no_figure() -> None:
    found = measure(3, "torch", MODULE, Processes(report(500, 400)))

    assert (found.context_bytes, found.libraries_bytes) == (None, None)
    assert "another process gave some back" in found.missing[CONTEXT]


def test_a_context_alone_where_the_framework_cannot_be_measured() -> None:
    found = measure(3, "torch", MODULE, Processes(report(100, 600), "it crashed"))
    assert (found.context_bytes, found.missing) == (500 * MIB, {LIBRARIES: "it crashed"})

    found = measure(3, "tensorflow", None, Processes(report(100, 600)))
    assert found.missing == {LIBRARIES: "not measured for tensorflow"}


@pytest.mark.parametrize("answer", ["no driver", {"total": 5}])
def test_a_process_that_prints_nothing_of_use_is_a_reason(answer: Any) -> None:
    found = measure(3, "torch", MODULE, Processes(answer))

    assert found.facts() == dict.fromkeys(found.facts())
    assert set(found.missing) == {CONTEXT, LIBRARIES}


class Card(FakeNvml):
    """A card of which each asking finds 100 more in use."""

    used = 200

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int | None = None) -> Any:  # noqa: N802
        self.used += 100
        return SimpleNamespace(total=1000, used=self.used, reserved=50)


def test_what_work_takes_is_reported_with_what_the_allocator_holds() -> None:
    card = Card(processes={os.getpid(): 90, 7: 40})

    assert json.loads(context.around(0, lambda: 12, FakeCuda(), card)) == {
        "total": 1000, "before": 300, "after": 400, "process": 90, "others": 40, "held": 12,
    }  # fmt: skip
    assert (card.opened, card.shut) == (1, 1)


@pytest.mark.parametrize("processes", [{7: 40}, {os.getpid(): None, 7: 40}])
def test_in_a_container_the_figures_by_process_may_be_missing(processes: dict[int, int | None]) -> None:
    figures = json.loads(context.around(0, lambda: 0, FakeCuda(), Card(processes=processes)))

    assert (figures["process"], figures["others"]) == (None, None)


def test_a_driver_that_refuses_is_a_reason_and_is_left() -> None:
    card = FakeNvml(refuses={"nvmlDeviceGetMemoryInfo": NO_PERMISSION})

    with pytest.raises(UnavailableError, match="Insufficient Permissions"):
        context.around(0, lambda: 0, FakeCuda(), card)
    assert card.shut == 1


class Driver(FakeCuda):
    """A driver that counts how often its primary context is held, and who has it for its own."""

    def __init__(self, status: int = 0) -> None:
        super().__init__()
        self.held = self.pushed = 0
        self.status = status

    def cuDevicePrimaryCtxRetain(self, made: Any, device: ctypes.c_int) -> int:  # noqa: N802
        self.held += 1
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, device: ctypes.c_int) -> int:  # noqa: N802
        self.held -= 1
        return 0

    def cuCtxPushCurrent_v2(self, made: Any) -> int:  # noqa: N802
        self.pushed += 1
        return 0

    def cuCtxPopCurrent_v2(self, made: Any) -> int:  # noqa: N802
        self.pushed -= 1
        return 0

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:  # noqa: N802
        free._obj.value, total._obj.value = 300, 1000
        return self.status


def test_what_is_free_is_asked_in_the_devices_own_context_and_that_is_left() -> None:
    driver = Driver()

    assert context.free_and_total_bytes(0, driver) == (300, 1000)
    assert (driver.held, driver.pushed) == (0, 0)

    driver = Driver(status=2)
    with pytest.raises(UnavailableError, match="error 2"):
        context.free_and_total_bytes(0, driver)
    assert (driver.held, driver.pushed) == (0, 0)
    with pytest.raises(UnavailableError, match="lacks a function"):
        context.free_and_total_bytes(0, FakeCuda())


def test_a_driver_is_there_where_one_of_its_files_is(tmp_path: Path) -> None:
    assert context.has_driver([tmp_path / "none", tmp_path])
    assert not context.has_driver([tmp_path / "none"])


def test_a_fresh_process_runs_a_modules_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answering.py").write_text("def main(given):\n    print('{\"given\":', given, '}')\n")
    (tmp_path / "failing.py").write_text("def main(given):\n    raise ValueError(given)\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])

    assert fresh.ask("answering", 7, 60) == {"given": 7}
    with pytest.raises(UnavailableError, match="ValueError: no"):
        fresh.ask("failing", "no", 60)
    with pytest.raises(UnavailableError, match="had not ended after"):
        fresh.ask("answering", 7, 0.001)


def test_a_fresh_process_that_no_signal_ends_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As one does that waits for a driver that never answers it."""
    started: list[subprocess.Popen[str]] = []

    class Deaf(subprocess.Popen[str]):
        def kill(self) -> None:
            started.append(self)

    (tmp_path / "waiting.py").write_text("import time\ndef main(given):\n    time.sleep(60)\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(fresh, "_END_S", 0.01)
    monkeypatch.setattr(fresh.subprocess, "Popen", Deaf)

    with pytest.raises(UnavailableError, match="had not ended after"):
        fresh.ask("waiting", None, 0.05)
    (process,) = started
    assert process.poll() is None
    super(Deaf, process).kill()
    process.communicate()
