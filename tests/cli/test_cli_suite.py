"""What the command line does with the models of the suite: real data, learning, and the tables of all of them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import toy as models
from data_sets import forbid, grays, image_folder
from fakes import FakeClock, FakeHook
from known_peaks import QUICK_START

from tbdprof import suite
from tbdprof.facts.file.reading import load
from tbdprof.hooks import Setting
from tbdprof.launch import prepared
from tbdprof.suite.data import datasets, imagenet
from tbdprof.suite.data.loading import order

Command = Callable[..., tuple[int, str, str]]
RUN = ["run", "toy", "--framework", "torch", "--warmup", "1", "--steps", "2", "-q", "-o", "a.tbd"]
CHECK = ["train-check", "toy", "--framework", "torch", "-q"]
WINDOWS = ["warmup", "clean", "memory", "clean", "kernels", "clean"]
READS_IMAGENET = models.FACTS.replace('dataset="none"', 'dataset="ImageNet1K"')


class WallClock(FakeClock):
    """The clock of the profiler, for a hook whose stories have its time."""

    now_ns = property(lambda self: time.monotonic_ns(), lambda self, _: None)


class PreparedHook(FakeHook):
    """Keeps what it was prepared with, and gives each step of a kernels window a time of its own."""

    settings: list[Setting] = []  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__(clock=WallClock())

    def prepare(self, setting: Setting) -> None:
        self.settings.append(setting)


@pytest.fixture
def tbdprof(monkeypatch: pytest.MonkeyPatch, typed: Command, tmp_path: Path) -> Command:
    """Return a function that runs the command line here with a fake framework: exit code, stdout, stderr."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(prepared, "load", lambda framework: PreparedHook())
    PreparedHook.settings.clear()
    return typed


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with models.toy(tmp_path / "models", monkeypatch):
        yield


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder of images, which the toy model reads."""
    with models.toy(tmp_path / "models", monkeypatch, __init__=READS_IMAGENET):
        yield image_folder(tmp_path / "my pictures", {f"n{number}": grays(40 * number) for number in range(6)})


def test_a_model_in_a_folder_of_its_own_is_listed_run_and_checked_without_any_other_change(tbdprof: Command, toy: None):
    listed = json.loads(tbdprof("list", "--json")[1])
    assert listed["toy"]["parameters"] == 6
    assert "toy" in tbdprof("list")[1]
    overview = json.loads(tbdprof("list", "--table", "--json")[1])
    assert "toy" in {each["name"] for each in overview["models"]}
    assert "Toy" in tbdprof("list", "--table")[1]

    code, text, said = tbdprof(*RUN)
    assert (code, said) == (0, "tbdprof: recorded in a.tbd\n")
    assert text.startswith("toy · ")

    code, text, said = tbdprof(*CHECK)
    assert (code, said) == (0, "")
    assert text.startswith("toy · torch 1.0 · cpu · ")


def test_a_run_on_real_data_reports_how_long_it_waited_and_the_folders_name_alone(tbdprof: Command, reader: Path):
    code, _, said = tbdprof(*RUN, "--data", str(reader))

    assert (code, said) == (0, "tbdprof: recorded in a.tbd\n")
    kept = load(Path("a.tbd"))
    assert kept.run.options["data"] == "my pictures"
    assert str(reader.parent).encode() not in Path("a.tbd").read_bytes()
    document = json.loads(tbdprof("report", "a.tbd", "--json")[1])
    assert 0 < document["throughput"]["data_wait"] < 1


def test_a_link_is_shown_by_its_own_name_and_what_it_points_at_is_not(tbdprof: Command, reader: Path):
    Path("link").symlink_to(reader)

    assert tbdprof(*RUN, "--data", "./link/.")[0] == 0
    assert load(Path("a.tbd")).run.options["data"] == "link"
    assert reader.name.encode() not in Path("a.tbd").read_bytes()


def test_a_synthetic_run_waits_for_no_data_and_says_so(tbdprof: Command, toy: None):
    tbdprof(*RUN, "--data", "synthetic")

    document = json.loads(tbdprof("report", "a.tbd", "--json")[1])
    assert document["throughput"]["data_wait"] == 0
    assert "data" not in document["run"]["options"]
    assert "loading" not in tbdprof("report", "a.tbd")[1]


def test_a_broken_file_ends_the_run_with_its_name_and_what_was_recorded_is_kept(tbdprof: Command, reader: Path):
    broken = reader / "n3" / "n3_0.JPEG"
    waits = models.LEAF.replace(
        "next(self.batches)", "next(self.batches); self.at = getattr(self, 'at', 0) + 1; spoil(self)"
    )
    spoil = f"""
def spoil(workload):
    if workload.at == 8:  # in the second clean window
        open({str(broken)!r}, "w").close()
"""
    (reader.parent / "models" / "toy" / "on_torch.py").write_text(waits + spoil)

    code, out, said = tbdprof(*RUN, "--batch-size", "6", "--data", str(reader))

    assert (code, out) == (1, "")
    assert said == (
        f"tbdprof: {broken} is no image in BMP, JPEG, PNG, PPM, WEBP: restore it, or take it out of the data set; "
        "what was recorded is in a.tbd\n"
    )
    kept = load(Path("a.tbd"))
    assert [window.name for window in kept.windows] == WINDOWS[: len(kept.windows)]
    assert [window.state for window in kept.windows[:3]] == ["complete"] * 3
    assert kept.windows[-1].state == "cut short"
    assert kept.run.ended_by == "DataError"
    assert json.loads(tbdprof("report", "a.tbd", "--json")[1])["throughput"] is not None


def test_a_broken_file_ends_the_training_of_a_real_framework_alike(tmp_path: Path):
    folder = image_folder(tmp_path / "pictures", {"n": grays(*range(0, 240, 10))})
    fourth = sorted(map(str, folder.glob("n/*")))[order(24, 0, 0)[7]]  # step, in the memory window
    Path(fourth).write_text("")
    asked = ["--batch-size", "2", "--image-size", "32", "--threads", "1", "--warmup", "1", "--steps", "1"]
    words = ["run", "resnet50", "--framework", "torch", *asked, "-q", "-o", "a.tbd", "--data", str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([QUICK_START, str(Path(__file__).parents[2])])}

    done = subprocess.run(
        [sys.executable, "-m", "tbdprof", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"tbdprof: {fourth} is no image in BMP, JPEG, PNG, PPM, WEBP: ")
    assert done.stderr.endswith("; what was recorded is in a.tbd\n")
    assert done.stderr.count("\n") == 1
    windows = load(tmp_path / "a.tbd").windows
    states = ["complete", "complete", "cut short"]
    assert [(window.name, window.state) for window in windows] == list(zip(WINDOWS, states, strict=False))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda folder: None, "no folder DIR: give --data the folder of the data set, or synthetic"),
        (Path.mkdir, "DIR is empty: give --data the folder of the data set"),
        (Path.touch, "DIR is no folder: give --data the folder of the data set"),
        (
            lambda folder: (folder / "VOC2007").mkdir(parents=True),
            f"DIR should hold {imagenet.EXPECTED}, but holds VOC2007/",
        ),
    ],
)
def test_a_folder_that_cannot_be_the_data_set_is_refused_before_anything_is_begun(
    tbdprof: Command, reader: Path, tmp_path: Path, make: Callable[[Path], object], line: str
):
    folder = tmp_path / "other"
    make(folder)

    said = f"tbdprof: {line}\n".replace("DIR", str(folder), 1)
    assert tbdprof(*RUN, "--data", str(folder)) == (2, "", said)
    assert PreparedHook.settings == []
    assert list(Path().iterdir()) == []


def test_a_folder_of_no_name_is_refused(tbdprof: Command, reader: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(reader)

    said = "tbdprof: --data is empty: give the folder of the data set, or synthetic\n"
    assert tbdprof(*RUN, "--data", "") == (2, "", said)


def test_a_folder_that_may_not_be_listed_is_refused_in_one_line(
    tbdprof: Command, reader: Path, monkeypatch: pytest.MonkeyPatch
):
    line = forbid(monkeypatch, reader / "n3")

    assert tbdprof(*RUN, "--data", str(reader)) == (2, "", f"tbdprof: {line}\n")
    assert PreparedHook.settings == []


def test_a_data_set_without_a_reader_is_refused(tbdprof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    facts = models.FACTS.replace('dataset="none"', 'dataset="Unread"')
    monkeypatch.setitem(datasets.DATASETS, "Unread", datasets.Dataset("Unread", "12", "1 byte"))
    with models.toy(tmp_path / "models", monkeypatch, __init__=facts):
        said = "tbdprof: toy cannot read Unread yet: leave out --data, or give synthetic\n"
        assert tbdprof(*RUN, "--data", ".") == (2, "", said)


def test_a_data_set_nobody_knows_is_read_by_its_model(tbdprof: Command, toy: None, tmp_path: Path):
    image_folder(tmp_path / "mine", {"a": grays(0)})

    said = "tbdprof: no folder gone: give --data the folder of none, or synthetic\n"
    assert tbdprof(*RUN, "--data", "gone") == (2, "", said)
    long = "n" * 300  # no file system takes it, and asking whether it is a folder is an error, or not, by the Python
    code, out, said = tbdprof(*RUN, "--data", long)
    assert (code, out, said.count("\n")) == (2, "", 1)
    assert long in said
    assert tbdprof(*RUN, "--data", str(tmp_path / "mine"))[0] == 0


def test_a_model_that_learns_passes_and_the_table_says_by_which_rule(tbdprof: Command, toy: None):
    code, text, said = tbdprof(*CHECK, "--seed", "3", "--threads", "2")

    assert (code, said) == (0, "")
    lines = [line.split() for line in text.splitlines()]
    assert text.splitlines()[:2] == [
        "toy · torch 1.0 · cpu · 2 threads · seed 3",
        "trained on points by their side of a line",
    ]
    assert ["step", "training", "held-out", "loss", "top-1"] in lines
    assert ["0", "0.0", "s", "0.6931"] in [line[:4] for line in lines]
    assert ["guessing", "0.693", "0.5"] in lines
    assert text.splitlines()[-1] == "passed: top-1 above 0.8"
    assert PreparedHook.settings == [Setting("auto", 2, seed=3, follows=False)]


def test_a_model_that_does_not_learn_fails_with_exit_code_1(
    tbdprof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    deaf = models.LEAF.replace("self.weight -=", "self.weight += 0 *")
    with models.toy(tmp_path / "models", monkeypatch, on_torch=deaf):
        code, text, said = tbdprof(*CHECK)

    assert (code, said) == (1, "")
    assert text.splitlines()[-1] == "not passed: top-1 above 0.8"


def test_a_loss_that_is_no_number_is_null_in_json(tbdprof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lost = models.LEARNING.replace("learner.train((", "learner.weight[:] = np.nan; learner.train((")
    with models.toy(tmp_path / "models", monkeypatch, learning=lost):
        code, text, _ = tbdprof(*CHECK, "--json", "--steps", "2")

    document = json.loads(text)
    assert code == 1
    assert document["curve"][-1] == {"step": 2, "seconds": 0.2, "loss": None, "quality": pytest.approx(0.5, abs=0.1)}
    assert (document["model"], document["measure"], document["passed"]) == ("toy", "top-1", False)


def test_progress_of_a_check_goes_to_stderr(tbdprof: Command, toy: None):
    code, text, said = tbdprof(*CHECK[:-1], "--json", "--steps", "7")

    assert json.loads(text)["curve"][-1]["step"] == 7
    assert (code, said) == (0, "tbdprof: training: step 0 of 7\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["to", "--framework", "torch"], "unknown model 'to' (did you mean toy?): choose one of "),
        (["toy"], "no framework given: add --framework torch"),
        (["toy", "--framework", "mxnet"], "toy is not written for 'mxnet': choose torch"),
        (["toy", "--framework", "torch", "--steps", "0"], "Invalid value for '--steps': 0"),
        (["toy", "--framework", "torch", "--seed", "-1"], "seed is -1: give 0 or more"),
        ([], "Missing argument 'MODEL'"),
    ],
)
def test_what_cannot_be_checked_is_one_line_and_exit_code_2(tbdprof: Command, toy: None, words: list[str], line: str):
    code, out, said = tbdprof("train-check", *words)

    assert (code, out) == (2, "")
    assert said.startswith(f"tbdprof: {line}")
    assert said.count("\n") == 1


def test_a_model_without_a_check_says_what_is_to_be_written(tbdprof: Command, toy: None, tmp_path: Path):
    (tmp_path / "models" / "toy" / "learning.py").unlink()

    said = "tbdprof: toy has no check of its training: suite/toy/learning.py is to hold a CHECK\n"
    assert tbdprof(*CHECK) == (2, "", said)


def test_the_tables_are_the_papers_and_a_data_set_nobody_knows_has_its_name_alone(tbdprof: Command, toy: None):
    overview = json.loads(tbdprof("list", "--table", "--json")[1])

    assert [each["name"] for each in overview["models"]] == suite.names()
    assert {
        "name": "resnet50",
        "title": "ResNet-50",
        "application": "image classification",
        "layers": "50",
        "dominant_layer": "convolution",
        "frameworks": list(suite.frameworks("resnet50")),
        "dataset": "ImageNet1K",
    } in overview["models"]
    named = {each["name"]: each for each in overview["datasets"]}
    assert named["none"] == {"name": "none", "samples": None, "size": None, "special": None}
    assert named["ImageNet1K"]["samples"] == "1.2 million"
    assert set(named) == {suite.find(name).dataset for name in suite.names()}


TIMED = """
    threads = 0

    def pause(self):
        with open("calls", "a") as calls:
            calls.write("pause ")

    def close(self):
        with open("calls", "a") as calls:
            calls.write("close")

    def step(self) -> float:
"""


def test_a_workload_of_threads_is_paused_at_watched_windows_and_closed_at_the_end(
    tbdprof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    leaf = models.LEAF.replace("    def step(self) -> float:\n", TIMED)
    with models.toy(tmp_path / "threads", monkeypatch, on_torch=leaf):
        assert tbdprof(*RUN)[0] == 0

    assert Path("calls").read_text() == "pause " * (4 + 4) + "close"  # both edges of two windows, each step of one


def test_a_switch_of_a_model_may_stand_alone(tbdprof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    facts = models.FACTS.replace(
        'Option("kind"', 'Option("full_size", "off", "the whole", ("off", "on")), Option("kind"'
    )
    with models.toy(tmp_path / "switches", monkeypatch, __init__=facts):
        for number, words in enumerate(([], ["--full-size"], ["--full-size", "off"], ["--full-size=on"])):
            path = f"{number}.tbd"
            assert tbdprof("run", *words, *RUN[1:-1], path)[0] == 0
        found = [load(Path(f"{number}.tbd")).run.options["full_size"] for number in range(4)]

    assert found == ["off", "on", "off", "on"]
