"""`tbdprof advise` as a whole, without any training: each run leaves a copy of a recording (`Runs`)."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tbdprof.cli import advising
from tbdprof.cli.main import cli
from tbdprof.errors import TbdprofError, UsageError
from tbdprof.launch.request import RunRequest
from tbdprof.loop.plan import Schedule
from tbdprof.results.sweep import End
from tbdprof.sweep.first_losses import finite
from tbdprof.sweep.folder import Folder, load
from tbdprof.sweep.outcome import Outcome
from tbdprof.sweep.plan import Plan, Point

RECORDING = Path(__file__).parents[1] / "fixtures/format-5-torch.tbd"


class Runs:
    """Takes the place of the runs of a sweep, and keeps their names."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.outcomes: dict[str, Outcome] = {}

    def __call__(self, folder: Folder, _watcher: object) -> None:
        for settings in folder.plan.combinations():
            point = folder.plan.point(settings)
            if folder.outcome(point) is None:
                self._end(folder, point)

    def _end(self, folder: Folder, point: Point) -> None:
        self.names.append(point.name)
        shutil.copy(RECORDING, folder.recording(point))
        found = self.outcomes.get(point.name, Outcome(End.FINISHED, seconds=1.0, losses=(7.0, 6.0)))
        folder.keep(point, found)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs()
    monkeypatch.setattr(advising, "run", made)
    return made


@pytest.fixture
def advise(tmp_path: Path, runs: Runs) -> Callable[..., Result]:
    """Return what types `tbdprof advise resnet50` with more words, into one folder."""

    def typed(*words: str) -> Result:
        given = ["advise", "resnet50", "--framework", "torch", "-o", str(tmp_path / "tried"), "-q", *words]
        return CliRunner().invoke(cli, given)

    return typed


def test_the_plain_run_is_first_and_repeated_last_and_each_switch_is_tried_once(
    advise: Callable[..., Result], runs: Runs, tmp_path: Path
) -> None:
    done = advise("--all", "--json")

    report: dict[str, Any] = json.loads(done.stdout)
    assert runs.names[0] == "resnet50-torch"
    assert runs.names[-1] == "resnet50-torch-again=1"
    tried = {f"resnet50-torch-{name}=on" for name in ("compile", "channels_last", "fused_optimizer", "checkpointing")}
    assert tried < {*runs.names}
    assert len({*runs.names}) == len(runs.names) == 2 + len(report["trials"])
    assert {each["result"] for each in report["trials"]} == {"no difference"}  # they are copies
    assert report["plain"]["losses"]["values"] == [7.0, 6.0]
    assert load(tmp_path / "tried").plan.loss_steps == advising.LOSS_STEPS


def test_all_runs_record_their_windows_as_often_as_asked(advise: Callable[..., Result], tmp_path: Path) -> None:
    assert advise("--repeat", "5").exit_code == 0

    program = load(tmp_path / "tried").plan.program
    assert isinstance(program, RunRequest)
    assert program.schedule == Schedule(repeat=5)


def test_the_same_command_runs_nothing_again(advise: Callable[..., Result], runs: Runs) -> None:
    first = advise()
    before = len(runs.names)

    assert advise().stdout == first.stdout
    assert len(runs.names) == before
    assert isinstance(advise("--batch-size", "3").exception, UsageError)  # another plain run


def test_a_run_that_failed_is_a_row_with_its_reason(advise: Callable[..., Result], runs: Runs) -> None:
    runs.outcomes["resnet50-torch-checkpointing=on"] = Outcome(End.FAILED, "no such operator", 1.0)

    done = advise("--all")

    assert "checkpointing: failed: no such operator" in done.stdout


def test_without_a_plain_run_nothing_is_compared(advise: Callable[..., Result], runs: Runs) -> None:
    runs.outcomes["resnet50-torch"] = Outcome(End.OUT_OF_MEMORY, "out of memory (asked 3 GiB)")

    error = advise().exception

    assert isinstance(error, TbdprofError)
    assert str(error).endswith("there is nothing to compare with: out of memory (asked 3 GiB)")
    assert runs.names == ["resnet50-torch"]


def test_a_plan_with_chosen_points_has_these_and_no_others() -> None:
    request = RunRequest("resnet50", "torch")
    plan = Plan(request, {}, chosen=({}, {"compile": "on"}, {"again": 1}), loss_steps=10)

    programs = [plan.program_at(settings) for settings in plan.combinations()]

    assert programs == [request, replace(request, options={"compile": "on"}), request]


def test_a_loss_that_is_not_finite_ends_the_trial_with_a_reason() -> None:
    after = iter([2.0, 1.0, float("nan"), 3.0])

    with pytest.raises(TbdprofError, match="the loss after 2 steps is nan"):
        finite(after)
    assert next(after) == 3.0
    assert finite([2.0, 1.0]) == (2.0, 1.0)
