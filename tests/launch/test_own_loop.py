"""Profiling one's own loop: how the framework is recognized, and what is refused."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import FakeHook

import tbdprof
from tbdprof.errors import UsageError
from tbdprof.launch import own_loop


class OfTorch:
    """An instance passes for a torch model's."""


OfTorch.__module__ = "torch.nn.modules"


class OwnModel(OfTorch):
    """As users write them: their own class of the framework's."""


def without_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in own_loop.FRAMEWORKS:
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_the_framework_is_recognized_by_the_base_classes_of_the_model(monkeypatch: pytest.MonkeyPatch):
    without_frameworks(monkeypatch)

    prof = tbdprof.profile(OwnModel(), enabled=False)

    assert prof.recording.run.framework == "torch"
    assert prof.recording.run.model == "OwnModel"


def test_without_model_the_only_imported_framework_is_meant(monkeypatch: pytest.MonkeyPatch):
    without_frameworks(monkeypatch)
    monkeypatch.setitem(sys.modules, "mxnet", sys)

    assert tbdprof.profile(enabled=False).recording.run.framework == "mxnet"


def test_a_framework_that_cannot_be_recognized_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    without_frameworks(monkeypatch)

    with pytest.raises(UsageError, match=r"no framework imported.*framework=torch or mxnet"):
        tbdprof.profile()


def test_two_frameworks_that_are_both_there_are_not_chosen_between(monkeypatch: pytest.MonkeyPatch):
    for name in own_loop.FRAMEWORKS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("torch", "mxnet"):
        monkeypatch.setitem(sys.modules, name, sys)

    with pytest.raises(UsageError, match="torch and mxnet are both there"):
        tbdprof.profile()


def test_a_disabled_profiler_does_nothing_and_says_so(tmp_path: Path):
    with tbdprof.profile(OwnModel(), enabled=False, output=tmp_path / "a.tbd") as prof:
        assert not prof.active
        for _ in range(100):
            prof.step(1)

    assert prof.recording.windows == []
    assert prof.summary.missing["throughput"] == "profiling was disabled"
    assert list(tmp_path.iterdir()) == []


def test_a_summary_is_worked_out_again_only_when_more_was_recorded():
    prof = tbdprof.profile(OwnModel(), enabled=False)
    first = prof.summary

    assert prof.summary is first

    prof.start()  # records why nothing will be

    assert prof.summary is not first
    assert prof.summary.missing["throughput"] == "profiling was disabled"


NAN = float("nan")
WHOLE = (NAN, 1.5, "4", True, [], 10**400, -1, 10**10, np.float64(4), np.array([4]))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, (0, *WHOLE)) for name in ("steps", "max_warmup", "repeat", "batch_size", "samples_per_step")),
        ("precision", ("", 7, NAN, [], "fp31")),
        ("repeat", (None,)),
        ("warmup", ("soon", "", None, *WHOLE[:1], *WHOLE[2:])),
        ("framework", ("caffe", "", 7, NAN, ["torch"], np.array(["torch"]), "x" * 10**6)),
        ("unit", ("", " ", None, 7, NAN, [], "steps")),
        ("name", ("", 7, NAN, [])),
        ("output", ("", 7, NAN, [], b"a.tbd", "a\0.tbd", "a" * 300, Path("no-such-folder/a.tbd"), ".")),
        ("enabled", ("yes", None, 2, NAN, [])),
        ("force", ("yes", None, 2, NAN, [])),
        *((name, (7, NAN, "model", {"a": 1}, [None], np.zeros(3), len, OwnModel)) for name in ("models", "optimizers")),
    ],
)
def test_what_makes_no_sense_is_refused_at_the_call_in_one_line(name: str, values: Sequence[object]):
    for value in values:
        with pytest.raises(UsageError) as refused:
            tbdprof.profile(**{"models": OwnModel(), name: value})  # type: ignore[arg-type]
        assert len(str(refused.value)) < 250 or len(str(value)) > 250


def test_whole_numbers_of_any_type_are_numbers():
    prof = tbdprof.profile(OwnModel(), steps=np.int64(4), warmup=np.uint8(2), batch_size=np.int32(8), enabled=np.True_)

    assert (prof._joining.schedule.steps, prof._joining.schedule.warmup) == (4, 2)
    assert json.dumps(prof.recording.run.batch_size) == "8"


def test_what_is_saved_needs_the_name_of_a_file(tmp_path: Path):
    prof = tbdprof.profile(OwnModel(), enabled=False)

    for name in ("", "a\0b", 7, None, NAN, "a" * 300, tmp_path):
        with pytest.raises(UsageError):
            prof.save(name)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="force is 'yes'"):
        prof.save(tmp_path / "a.tbd", force="yes")  # type: ignore[arg-type]


def test_a_defect_in_the_results_is_one_line_and_printing_a_profiler_never_fails(monkeypatch: pytest.MonkeyPatch):
    prof = tbdprof.profile(OwnModel(), enabled=False)
    prof.start()
    assert "profiling was disabled" in str(prof)

    monkeypatch.setattr(own_loop, "render", lambda summary: {}["planted"])
    assert str(prof).startswith(
        f"tbdprof: tbdprof {tbdprof.__version__} failed to print the report: KeyError: 'planted'"
    )

    monkeypatch.setattr(own_loop, "summarize", lambda recording: {}["planted"])
    prof = tbdprof.profile(OwnModel(), enabled=False)
    with pytest.raises(tbdprof.TbdprofError, match="failed to work out the results: KeyError: 'planted'"):
        _ = prof.summary
    assert str(prof).count("\n") == 0


@pytest.mark.parametrize("name", ["caffe", "", 7, None, ["torch"], NAN])
def test_only_a_framework_can_be_prepared(name: object):
    with pytest.raises(UsageError):
        tbdprof.prepare(name)  # type: ignore[arg-type]


def test_an_output_that_exists_is_refused_before_anything_is_watched(tmp_path: Path):
    (tmp_path / "a.tbd").write_text("precious")

    with pytest.raises(UsageError, match="exists"):
        tbdprof.profile(OwnModel(), output=tmp_path / "a.tbd")


def test_a_framework_is_joined_when_the_loop_begins_and_not_before(monkeypatch: pytest.MonkeyPatch):
    hook = FakeHook()
    monkeypatch.setattr(own_loop, "load", lambda framework: hook)

    prof = tbdprof.profile(OwnModel(), warmup=1)
    assert hook.calls == []
    with prof:
        assert hook.calls[:2] == ["attach", "watch"]


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, ["warmup", "memory", "clean", "kernels", "warmup"]),
        ({"warmup": 4}, ["warmup", "clean"]),
        ({"max_warmup": 4}, ["warmup", "clean"]),
        ({"warmup": 1, "steps": 2}, ["warmup", "clean", "memory", "clean", "kernels"]),
    ],
)
def test_without_a_stated_plan_a_loop_of_12_steps_has_memory_clean_and_kernels_windows(
    monkeypatch: pytest.MonkeyPatch, stated: dict[str, Any], expected: list[str]
):
    monkeypatch.setattr(own_loop, "load", lambda framework: FakeHook())

    with tbdprof.profile(OwnModel(), **stated) as prof:
        for _ in range(12):
            prof.step(1)

    assert [window.name for window in prof.recording.windows] == expected


@pytest.mark.parametrize("fails", ["attach", "watch", "facts", "synchronize"])
def test_where_tbdprof_cannot_join_nothing_is_recorded_and_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch, fails: str
):
    hook = FakeHook()
    monkeypatch.setattr(own_loop, "load", lambda framework: hook)
    monkeypatch.setattr(hook, fails, lambda *things: 1 / 0)

    with tbdprof.profile(OwnModel()) as prof:
        prof.step(1)

    assert hook.closed == 1
    assert prof.recording.windows == [] or not len(prof.recording.windows[0].table("step"))
    assert "before the first window" in prof.recording.missing["given up"]
    assert "please report this line" in " ".join(str(prof).split())


def test_what_is_no_model_is_refused_where_the_loop_begins_and_leaves_nothing_joined(monkeypatch: pytest.MonkeyPatch):
    hook = FakeHook()
    monkeypatch.setattr(own_loop, "load", lambda framework: hook)

    def refuse(*things: object) -> None:
        raise UsageError("neither a torch module nor a torch optimizer")

    monkeypatch.setattr(hook, "watch", refuse)
    for _ in range(2):  # the second is not hindered by the first
        with pytest.raises(UsageError, match="neither"):
            tbdprof.profile(OwnModel()).start()
    assert hook.closed == 2
