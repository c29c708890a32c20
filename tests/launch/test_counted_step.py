"""A step counted after the run: what is run again, and what becomes of the recording."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes import FakeHook
from make import timed_window
from toy import toy

from tbdprof.analysis.summary import summarize
from tbdprof.cli import main
from tbdprof.collect import ncu
from tbdprof.collect.gpu.cuda_driver import Limits
from tbdprof.collect.gpu.nvidia import Counters
from tbdprof.collect.ncu.output import Launch
from tbdprof.errors import UnavailableError, UsageError
from tbdprof.facts import counters
from tbdprof.facts.file import placing
from tbdprof.facts.file.placing import save
from tbdprof.facts.file.reading import load
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Run, Strings
from tbdprof.launch import counted_step, prepared, suite_run
from tbdprof.launch.request import RunRequest

REQUEST = RunRequest("toy", "torch", batch_size=4, options={"kind": "fancy"}, seed=3, threads=1)
LAUNCH = Launch("void f(int)", 7, (1, 1, 1), (32, 1, 1), {"gpu__time_duration.sum": 100.0})


class Driver:
    """A CUDA driver that keeps when it was asked to profile, between the steps the workload took."""

    def __init__(self, taken: list[str]) -> None:
        self.taken = taken

    def __getattr__(self, name: str) -> object:
        def call(*_: object) -> int:
            self.taken.append(name)
            return 0

        return call


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits("NVIDIA H200", "9.0", 132, 1.98e9, None)
    monkeypatch.setattr(counted_step.cuda_driver, "limits", lambda *_: limits)
    monkeypatch.setattr(counted_step.nvidia, "counters", lambda: Counters(True))


def recorded(path: Path, device: str = "cuda:1") -> Recording:
    run = Run("toy", "torch", device=device, batch_size=4, precision="bf16", complete=True, ended_by="")
    recording = Recording(run, [timed_window(0, "clean", [0.1, 0.1])], Strings(("a", "b")))
    save(recording, path)
    return recording


def counting(asked: list[tuple[Sequence[str], Mapping[str, str]]]) -> counted_step.Count:
    def count(child: Sequence[str], wanted: Mapping[str, str], *, tool: Path) -> ncu.Counted:
        asked.append((child, wanted))
        return ncu.Counted([LAUNCH], wanted, ["something to know"])

    return count


def refusing(*_: object, tool: Path) -> ncu.Counted:
    raise UnavailableError("it rains")


def add(path: Path, count: counted_step.Count, device: str = "cuda:1") -> Recording:
    return counted_step.add(recorded(path, device), REQUEST, path, count=count, tool=Path("/ncu"))


@pytest.mark.usefixtures("gpu")
def test_the_file_gets_the_counted_step_beside_what_it_had(tmp_path: Path) -> None:
    path = tmp_path / "run.tbd"

    returned = add(path, counting([]))

    for recording in (returned, load(path)):
        assert [(window.name, window.state) for window in recording.windows] == [
            ("clean", "complete"),
            ("counted", "complete"),
        ]
        kernel, *_ = recording.windows[1].table("kernel")
        assert (recording.strings[kernel["name"]], recording.strings[kernel["device"]]) == ("void f(int)", "cuda:1")
        (count,) = recording.windows[1].table("count")
        assert (recording.strings[count["counter"]], count["value"]) == (counters.COUNTED_NS, 100.0)
        assert recording.missing["counted in part"] == "something to know"
        assert len(recording.windows[0].table("step")) == 2
    assert [item.name for item in tmp_path.iterdir()] == ["run.tbd"]


@pytest.mark.usefixtures("gpu")
def test_the_child_is_given_what_the_run_turned_out_to_be(tmp_path: Path) -> None:
    asked: list[tuple[Sequence[str], Mapping[str, str]]] = []

    add(tmp_path / "run.tbd", counting(asked))

    ((child, wanted),) = asked
    assert list(child[1:3]) == ["-m", "tbdprof.launch.counted_step"]
    step = RunRequest.from_json(child[3])
    assert (step.model, step.device, step.batch_size, step.options, step.seed) == (
        "toy",
        "cuda:1",
        4,
        {"kind": "fancy"},
        3,
    )
    assert counters.counted_tensor_ops("bf16") in wanted.values(), "by the precision of the run"


@pytest.mark.usefixtures("gpu")
def test_what_cannot_be_counted_leaves_the_recording_and_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "run.tbd"

    add(path, refusing)

    kept = load(path)
    assert [window.name for window in kept.windows] == ["clean"]
    assert kept.missing["counted"] == "it rains"
    assert summarize(kept).missing["counted"] == "it rains"


def test_a_run_that_took_the_cpu_says_so(tmp_path: Path) -> None:
    assert "on the CPU" in add(tmp_path / "run.tbd", refusing, "cpu").missing["counted"]


def test_a_machine_without_the_tool_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted_step.ncu, "find", lambda: None)
    path = tmp_path / "run.tbd"

    returned = counted_step.add(recorded(path), REQUEST, path)

    assert returned.missing["counted"] == ncu.ABSENT


def test_counters_kept_for_root_are_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted_step.nvidia, "counters", lambda: Counters(False, "for root"))

    assert "for root" in add(tmp_path / "run.tbd", refusing).missing["counted"]


@pytest.mark.usefixtures("gpu")
def test_a_disk_that_fills_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.tbd"

    def full(*_: object, **__: object) -> None:
        raise UsageError("no space left")

    recording = recorded(path)
    before = path.read_bytes()
    monkeypatch.setattr(placing, "save", full)
    returned = counted_step.add(recording, REQUEST, path, count=counting([]), tool=Path("/ncu"))

    assert path.read_bytes() == before
    assert "no space left" in returned.missing["file"]
    assert [item.name for item in tmp_path.iterdir()] == ["run.tbd"]


def test_one_step_after_the_warm_up_is_marked_and_nothing_is_profiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    hook = FakeHook()
    monkeypatch.setattr(prepared, "load", lambda _: hook)
    monkeypatch.setattr(hook, "synchronize", lambda: taken.append("wait"))
    step = RunRequest("toy", "torch", "cuda:0", 2, threads=1, options={"kind": "plain"})

    with toy(tmp_path, monkeypatch):
        build = counted_step.suite.build

        def watched(*arguments: object) -> object:
            workload = build(*arguments)  # type: ignore[arg-type]
            take = workload.step
            monkeypatch.setattr(workload, "step", lambda: taken.append("step") or take())
            return workload

        monkeypatch.setattr(counted_step.suite, "build", watched)
        counted_step.run_counted(step, Driver(taken))

    begin, end = taken.index("cuProfilerStart"), taken.index("cuProfilerStop")
    assert taken[:begin].count("step") == counted_step.WARMUP_STEPS
    assert "wait" in taken[:begin], "what the warm-up asked for is not counted"
    assert taken[begin + 1 : end] == ["step", "wait"]
    assert hook.calls == ["prepare"], "no window, no peaks"
    assert hook.closed == 1


def test_a_problem_of_the_child_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    step = RunRequest("none", "torch", "cuda:0", 2, threads=1)

    code = counted_step.main([step.to_json()])

    assert code == 2
    assert capsys.readouterr().err.startswith("tbdprof: unknown model 'none'")


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_exact_on_a_cpu_is_refused_in_one_line_before_anything_runs(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> Limits:
        raise UnavailableError("the CUDA driver does not answer: no libcuda")

    monkeypatch.setattr(counted_step.cuda_driver, "limits", none)
    monkeypatch.setattr(suite_run, "run", lambda *_: pytest.fail("ran"))
    monkeypatch.chdir(tmp_path)
    words = ["run", "resnet50", "--framework", "torch", "--device", device, "--exact"]

    result = CliRunner().invoke(main.cli, words)

    assert isinstance(result.exception, UsageError)
    assert "--exact counts what a GPU does" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_exact_is_not_for_a_script() -> None:
    result = CliRunner().invoke(main.cli, ["run", "--exact", "--", "python", "train.py"])

    assert isinstance(result.exception, UsageError)
    assert "--exact is for the models of the suite" in str(result.exception)


def test_a_run_is_followed_by_its_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.tbd"
    ran = recorded(path)
    ran.run = replace(ran.run, settled=True)
    monkeypatch.setattr(counted_step, "refuse", lambda _: None)
    monkeypatch.setattr(suite_run, "run", lambda *_: ran)
    monkeypatch.setattr(counted_step, "add", lambda recording, request, *_: _marked(recording, request))

    result = CliRunner().invoke(
        main.cli, ["run", "resnet50", "--framework", "torch", "--exact", "-q", "-o", str(path), "--force"]
    )

    assert result.exception is None
    assert ran.missing["counted"] == "asked of resnet50"


def _marked(recording: Recording, request: RunRequest) -> Recording:
    recording.missing["counted"] = f"asked of {request.model}"
    return recording
