"""`tbdprof compare`: what it prints, one line for what cannot be asked, and the exit code of a gate."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from make import run, timed_window

from tbdprof.facts.file.placing import save
from tbdprof.facts.recording import Recording
from tbdprof.results.sweep import End
from tbdprof.sweep.folder import opened
from tbdprof.sweep.outcome import Outcome
from tbdprof.sweep.plan import Plan, Script

FIXTURES = Path(__file__).parents[1] / "fixtures"
TORCH, MXNET = FIXTURES / "format-5-torch.tbd", FIXTURES / "format-5-mxnet.tbd"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tbdprof(monkeypatch: pytest.MonkeyPatch, typed: Command, tmp_path: Path) -> Command:
    """Return a function that runs the command line in a folder with recordings of a loop, and of it 20 % slower."""
    monkeypatch.chdir(tmp_path)
    for name, times in (("a", 1.0), ("b", 1.2)):
        for number in (1, 2, 3):
            step = times * (0.1 + 0.001 * number)
            windows = [timed_window(at, "clean", [step, 1.01 * step]) for at in range(3)]
            save(Recording(run(complete=True, batch_size=8), windows), tmp_path / f"{name}{number}.tbd")
    for name, times in (("sweep-a", {1: 1.0, 2: 1.0, 4: 1.0}), ("sweep-b", {1: 1.0, 2: 1.3, 8: 1.0}), ("empty", {})):
        swept(tmp_path / name, times)
    return typed


def swept(path: Path, times: dict[int, float]) -> None:
    """Make the folder of a sweep over the batch, whose points have steps of these times."""
    folder = opened(path, Plan(Script(("train", "{batch}")), {"batch": tuple(map(str, times)) or ("16",)}))
    for batch, step in times.items():
        windows = [timed_window(at, "clean", [step, 1.01 * step]) for at in range(3)]
        point = folder.plan.point({"batch": str(batch)})
        save(Recording(run(complete=True, batch_size=batch), windows), folder.recording(point))
        folder.keep(point, Outcome(End.FINISHED))


A, B = "a1.tbd,a2.tbd,a3.tbd", "b1.tbd,b2.tbd,b3.tbd"


@pytest.mark.parametrize(
    ("sides", "limits", "code"),
    [
        ((A, B), (), 0),
        ((A, B), ("throughput < -5%",), 1),
        ((A, B), ("throughput < -30%",), 0),
        ((A, B), ("throughput < -17%",), 3),
        ((A, B), ("throughput < -17%", "step_time > +5%"), 1),
        ((A, A, B), ("throughput < -5%",), 1),
        (("a1.tbd", "a2.tbd"), ("throughput < -10%",), 0),
        (("a1.tbd", "b1.tbd"), ("peak_memory > +2%",), 3),
    ],
)
def test_the_exit_code_is_that_of_the_limits(
    tbdprof: Command, sides: tuple[str, ...], limits: tuple[str, ...], code: int
):
    words = [word for limit in limits for word in ("--fail-if", limit)]

    done, out, said = tbdprof("compare", *sides, *words)

    assert (done, said) == (code, "")
    assert all(limit in out for limit in limits)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["a1.tbd"], "1 recording to compare: give from 2 to 26, and join repeats with commas"),
        (["a1.tbd", "none.tbd"], "cannot read none.tbd: No such file or directory"),
        (["a1.tbd", "a2.tbd,"], "'a2.tbd,' names no file before or after a comma: "),
        (["a1.tbd", "."], "some of these are folders of sweeps and others are not: give either"),
        (["."], ". alone: give two sweeps or more"),
        ([".", "."], ". holds no sweep: give a folder that `tbdprof sweep -o` made"),
        (["sweep-a", "empty"], "sweep-a and empty have no point in common"),
        (["a1.tbd", "cut.tbd"], "cut.tbd is damaged: "),
        ([str(TORCH), str(MXNET)], "these are different models: "),
        (
            ["a1.tbd", "a2.tbd", "--fail-if", "thruput < -5%"],
            "--fail-if 'thruput < -5%': no figure 'thruput': did you mean throughput",
        ),
        (["a1.tbd", "a2.tbd", "--fail-if", "faster"], "--fail-if 'faster' is no limit: "),
        ([f"a1.tbd,{TORCH}", "a2.tbd"], f"{TORCH} is no repeat of a1.tbd: model Sequential, not toy; "),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_exit_code_2(tbdprof: Command, words: list[str], line: str):
    Path("cut.tbd").write_bytes(TORCH.read_bytes()[:40_000])

    code, out, said = tbdprof("compare", *words)

    assert (code, out) == (2, "")
    assert said.startswith(f"tbdprof: {line}")
    assert said.count("\n") == 1


def test_different_models_are_compared_anyway(tbdprof: Command):
    code, out, said = tbdprof("compare", str(TORCH), str(MXNET), "--anyway")

    assert (code, said) == (0, "")
    assert "Sequential" in out
    assert "HybridSequential" in out


def test_json_has_the_figures_their_intervals_and_the_limits(tbdprof: Command):
    code, out, said = tbdprof("compare", A, B, "--fail-if", "throughput < -5%", "--json")

    found = json.loads(out)
    (pair,), (limit,) = found["comparisons"], found["limits"]
    assert (code, said, found["schema"]) == (1, "", 1)
    assert [side["files"] for side in found["sides"]] == [A.split(","), B.split(",")]
    assert (pair["baseline"], pair["other"], pair["verdict"]) == ("A", "B", "slower")
    assert pair["throughput"]["ratio"] == pytest.approx(1 / 1.2)
    assert pair["throughput"]["ratio_ci95"][1] < 1
    assert (limit["limit"], limit["outcome"], limit["other"]) == ("throughput < -5%", "broken", "B")


def test_a_file_with_a_comma_in_its_name_is_one_file(tbdprof: Command):
    Path("a1.tbd").rename("a,1.tbd")

    assert tbdprof("compare", "a,1.tbd", "a2.tbd")[0] == 0


def test_a_hostile_recording_prints_no_character_that_acts(tbdprof: Command):
    hostile = "\x1b[31m[bold]x[/bold]\u202e\n" * 3
    windows = [timed_window(at, "clean", [0.1, 0.11]) for at in range(3)]
    made = Recording(run(complete=False, ended_by=hostile, options={"rnn": hostile}, device_name=hostile), windows)
    save(made, Path("hostile.tbd"))

    code, out, said = tbdprof("compare", "a1.tbd", "hostile.tbd")

    assert (code, said) == (0, "")
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert r"\x1b[31m[bold]" in out


def test_the_help_names_the_short_names_and_the_exit_codes(tbdprof: Command):
    code, out, _ = tbdprof("compare", "--help")

    assert code == 0
    assert {"throughput,", "peak_memory,", "energy."} <= set(out.split())
    assert "3" in out.partition("Exit code:")[2]


@pytest.mark.parametrize(
    ("limits", "code"),
    [((), 0), (("throughput < -10%",), 1), (("throughput < -60%",), 0), (("peak_memory > +2%",), 3)],
)
def test_sweeps_are_compared_point_by_point(tbdprof: Command, limits: tuple[str, ...], code: int):
    words = [word for limit in limits for word in ("--fail-if", limit)]

    done, out, said = tbdprof("compare", "sweep-a", "sweep-b", *words)

    assert (done, said) == (code, "")
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("batch=")}
    assert rows["batch=1"].endswith("no difference")
    assert "-23.1 %" in rows["batch=2"]
    assert rows["batch=2"].endswith("slower")
    for name in ("batch=4", "batch=8"):
        assert f"not compared, because a sweep has no recording of it: {name}" in out
    assert ("broken" in out) == (code == 1)


def test_sweeps_as_json_have_the_comparison_of_each_point(tbdprof: Command):
    _, out, _ = tbdprof("compare", "sweep-a", "sweep-b", "sweep-a", "--json")

    found = json.loads(out)
    assert found["sweeps"] == ["sweep-a", "sweep-b", "sweep-a"]
    assert [point["point"] for point in found["points"]] == ["batch=1", "batch=2"]
    assert [each["verdict"] for each in found["points"][1]["comparisons"]] == ["slower", "no difference"]
    assert found["left_out"] == ["batch=4", "batch=8"]
