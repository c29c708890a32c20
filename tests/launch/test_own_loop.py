"""Profiling one's own loop: how the framework is recognized, and what is refused."""

import sys
from pathlib import Path

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


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"warmup": -1}, "warmup is -1"),
        ({"warmup": "soon"}, "warmup is 'soon'"),
        ({"steps": 0}, "steps is 0"),
        ({"repeat": 0}, "repeat is 0"),
        ({"framework": "caffe"}, "unknown framework 'caffe'"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], said: str):
    with pytest.raises(UsageError, match=said):
        tbdprof.profile(OwnModel(), **wrong)  # type: ignore[arg-type]


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
    assert "please report this line" in str(prof)


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
