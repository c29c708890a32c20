"""What the command line says: results on stdout, one line on stderr where something is wrong, and an exit code."""

import csv
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from known_peaks import QUICK_START
from make import MemoryStory

from tbdprof import suite
from tbdprof.facts.file.placing import save
from tbdprof.facts.records import Phase, Role
from tbdprof.launch import suite_run
from tbdprof.launch.request import RunRequest

ROOT = Path(__file__).parents[2]
TBDPROF = [sys.executable, "-m", "tbdprof"]
SMALL = ["run", "resnet50", "--framework", "torch", "--image-size", "64", "--batch-size", "2", "--threads", "1"]
TORCH = ["resnet50", "--framework", "torch"]
WRITTEN_FOR = " or ".join(suite.frameworks("resnet50"))
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tbdprof(monkeypatch: pytest.MonkeyPatch, typed: Command, tmp_path: Path) -> Command:
    """Return a function that runs the command line here, in a folder of its own: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    return typed


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return a recording of two short steps."""
    story = MemoryStory(base_total=100)
    weight = story.existing(100)
    for _ in range(2):
        with story.phase(Phase.FORWARD):
            output = story.allocate(40)
        story.own(weight, Role.WEIGHT, "w")
        story.free(output)
        story.mark()
    save(story.recording(complete=True), tmp_path / "a.tbd")
    return tmp_path / "a.tbd"


def spawn(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}  # type: ignore[dict-item]
    return subprocess.run(
        [*TBDPROF, *words], env=environment, text=True, timeout=120, stderr=-1, **{"stdout": -1, **options}
    )  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["run", "resnet5"], "unknown model 'resnet5' (did you mean resnet50?): choose one of "),
        (["run"], "no model given: choose one of "),
        (["run", "resnet50"], f"no framework given: add --framework {WRITTEN_FOR}"),
        (["run", "resnet50", "--framework", "tourch"], f"resnet50 is not written for 'tourch': choose {WRITTEN_FOR}"),
        (["run", *TORCH, "--batch-size", "0"], "batch size is 0: give 1 or more"),
        (["run", *TORCH, "--batch-size", "-3"], "batch size is -3: give 1 or more"),
        (["run", *TORCH, "--batch-size", "many"], "Invalid value for '--batch-size': 'many'"),
        (["run", *TORCH, "--batch-size"], "Option '--batch-size' requires an argument"),
        (["run", *TORCH, "--image-size", "0"], "--image-size is '0': give a whole number of 1 or more"),
        (["run", *TORCH, "--variant", "v2"], "--variant is 'v2': choose v1.5 or v1"),
        (["run", *TORCH, "--colour", "red"], "resnet50 has no option --colour: choose --variant, --image-size"),
        (["run", *TORCH, "--image-siz", "64"], "resnet50 has no option --image-siz (did you mean --image-size?)"),
        (["run", *TORCH, "--batchsize", "2"], "resnet50 has no option --batchsize (did you mean --batch-size?)"),
        (["run", *TORCH, "--jsn"], "--jsn needs a value, or is no option of tbdprof run (did you mean --json?)"),
        (["run", *TORCH, "--precision", "fp16"], "unknown precision 'fp16': choose fp32, tf32, fp64, bf16"),
        (["run", *TORCH, "--steps", "0"], "Invalid value for '--steps': 0"),
        (["run", *TORCH, "--unit", "images"], "--unit is for scripts: put the script after --"),
        (["run", *TORCH, "--samples-per-step", "2"], "--samples-per-step is for scripts: put the script after --"),
        (["run", "--unit", "steps", "--", "true"], "--unit is 'steps': give what a step is counted in"),
        (["run", *TORCH, "--seed", "-1"], "seed is -1: give 0 or more"),
        (["run", "resnet50", "wgan", "--framework", "torch"], "one model at a time: resnet50 or wgan?"),
        (["run", "resnet50", "--", "python"], "unexpected 'resnet50' before --: "),
        *(
            (["run", option, value, "--", "true"], f"{option} is for the models of the suite: ")
            for option, value in [
                ("--batch-size", "2"),
                ("--threads", "1"),
                ("--device", "cpu"),
                ("--seed", "0"),
                ("--data", "synthetic"),
            ]
        ),
        (["run", "--framework", "tourch", "--", "true"], "unknown framework 'tourch': choose torch or mxnet"),
        (["run", "train.py"], "to profile a script, type: tbdprof run -- python train.py"),
        (["run", "train.py", "--epochs", "1"], "to profile a script, type: tbdprof run -- python train.py"),
        (["run", "python", "train.py"], "to profile a script, type: tbdprof run -- python train.py"),
        (["run", "python3", "-m", "train"], "to profile a script, type: tbdprof run -- python3 -m train"),
        (["run", "--"], "nothing after --: give the command to profile"),
        (["rune"], "No such command 'rune'"),
        (["doctor", "--device", "cpu"], "unknown device 'cpu': give the GPU to look at as cuda:N"),
        (["report"], "Missing argument 'FILE...'"),
        (["export", "a.tbd"], "Missing option '-o' / '--output'"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line_and_exit_code_2(tbdprof: Command, words: list[str], line: str):
    code, out, said = tbdprof(*words)

    assert (code, out) == (2, "")
    assert said.startswith(f"tbdprof: {line}")
    assert said.count("\n") == 1
    assert not list(Path().iterdir())


def test_a_batch_that_cannot_fit_is_refused_with_the_estimate_before_anything_is_allocated(tbdprof: Command):
    loaded = "torch" in sys.modules
    code, out, said = tbdprof("run", *TORCH, "--device", "cpu", "--batch-size", "1000000000")

    assert (code, out) == (2, "")
    assert said.startswith("tbdprof: batch size 1000000000 of resnet50 needs about 76.31 PiB and ")
    assert said.endswith(" are available: choose a smaller --batch-size\n")
    assert ("torch" in sys.modules) == loaded


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("there.tbd", "there.tbd exists: choose another name with -o, or overwrite it with --force"),
        ("missing/a.tbd", "cannot write missing/a.tbd: No such file or directory; choose another place with -o"),
        ("there.tbd/a.tbd", "cannot write there.tbd/a.tbd: Not a directory; choose another place with -o"),
        (".", ". is a folder: give a file name, such as run.tbd"),
    ],
)
@pytest.mark.parametrize("what", [TORCH, ["--", "touch", "started"]])
def test_an_output_that_cannot_be_written_is_refused_before_the_run(
    tbdprof: Command, what: list[str], output: str, line: str
):
    Path("there.tbd").write_text("mine")

    assert tbdprof("run", "-o", output, *what) == (2, "", f"tbdprof: {line}\n")
    assert Path("there.tbd").read_text() == "mine"
    assert [path.name for path in Path().iterdir()] == ["there.tbd"]


@pytest.mark.parametrize("framework", ["torch", "mxnet"])
@pytest.mark.parametrize(
    ("fails", "line"),
    [
        (
            "raise ModuleNotFoundError(f'No module named {__name__!r}', name=__name__)",
            "{framework} is not installed: pip install 'tbdprof[{framework}]'",
        ),
        ("raise OSError('libgomp.so.1: cannot open shared object file')", "libgomp"),
    ],
)
def test_a_framework_that_is_not_there_is_one_line_with_what_to_type(
    tmp_path: Path, framework: str, fails: str, line: str
):
    (tmp_path / "stubs").mkdir()
    (tmp_path / "stubs" / f"{framework}.py").write_text(fails)
    path = os.pathsep.join([str(tmp_path / "stubs"), str(ROOT)])

    done = spawn("run", "resnet50", "--framework", framework, env={"PYTHONPATH": path}, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("tbdprof: ")
    assert line.format(framework=framework) in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["stubs"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "cannot read b.tbd: No such file or directory"),
        (lambda whole: b"", "b.tbd is empty: nothing was recorded"),
        (lambda whole: bytes(range(256)) * 8, "b.tbd is not a tbdprof recording"),
        (lambda whole: whole[:5000], "b.tbd is damaged: "),
        (lambda whole: whole[: len(whole) // 2], "b.tbd is damaged: "),
        (lambda whole: whole[:60] + b"\0\0\0c" + whole[64:], "b.tbd was written by a newer tbdprof (format 99, "),
    ],
)
@pytest.mark.parametrize(
    "verb", [["report"], ["report", "--json"], ["kernels"], ["layers"], ["memory"], ["export", "-o", "c.sqlite"]]
)
def test_what_is_no_recording_is_one_line(
    tbdprof: Command, recorded: Path, verb: list[str], content: Callable[[bytes], bytes] | None, line: str
):
    if content is not None:
        Path("b.tbd").write_bytes(content(recorded.read_bytes()))

    code, out, said = tbdprof(*verb, "b.tbd")

    assert code == 1
    if "--json" in verb:
        error = json.loads(out)
        assert " ".join(filter(None, error.values())).startswith(line.split(": ")[0])
        assert (set(error), said) == ({"error", "hint"}, "")
    else:
        assert out == ""
        assert said.startswith(f"tbdprof: {line}")
        assert said.count("\n") == 1
    assert not Path("c.sqlite").exists()


@pytest.mark.parametrize(
    ("writes", "kept"), [(False, "nothing was recorded yet"), (True, "what was recorded is in a.tbd")]
)
def test_an_interrupt_speaks_of_what_this_run_recorded_and_of_no_older_file(
    tbdprof: Command, monkeypatch: pytest.MonkeyPatch, recorded: Path, writes: bool, kept: str
):
    def interrupted(request: RunRequest, path: Path, progress: object) -> None:
        if writes:
            path.unlink()
            path.write_text("new")
        raise KeyboardInterrupt

    monkeypatch.setattr(suite_run, "run", interrupted)

    said = f"tbdprof: interrupted; {kept}\n"
    assert tbdprof("run", *TORCH, "-q", "--force", "-o", "a.tbd") == (130, "", said)


def test_report_prints_text_or_json_and_nothing_else(tbdprof: Command, recorded: Path):
    code, text, said = tbdprof("report", "a.tbd")
    assert (code, said) == (0, "")
    assert "Memory of cpu at the peak" in text

    code, text, said = tbdprof("report", "a.tbd", "--json")
    assert (code, said) == (0, "")
    assert json.loads(text)["memory"]["allocator_peak_bytes"] == 140


def test_the_files_that_share_a_name_but_for_a_rank_are_reported_together(tbdprof: Command, recorded: Path):
    for name in ("b.rank0.tbd", "b.rank1.tbd"):
        Path(name).write_bytes(recorded.read_bytes())

    for words in (["b.tbd"], ["b.rank0.tbd", "b.rank1.tbd", "b"]):
        code, text, said = tbdprof("report", *words)
        assert (code, said) == (0, "")
        assert text.startswith("2 recordings\n")
    assert [each["file"] for each in json.loads(tbdprof("report", "b", "--json")[1])["ranks"]] == [
        "b.rank0.tbd",
        "b.rank1.tbd",
    ]
    hint = "tbdprof: b.tbd does not exist, but each rank has a file: give one, such as b.rank0.tbd\n"
    assert tbdprof("memory", "b.tbd") == (2, "", hint)
    assert tbdprof("report", "b", "--full")[::2] == (
        2,
        "tbdprof: --full is for one recording, and these are several: give one of them\n",
    )


@pytest.mark.parametrize(
    ("verb", "title", "field"),
    [
        ("memory", "Memory of cpu at the peak", "memory"),
        ("kernels", "not measured: no kernels window was recorded", "kernels"),
        ("layers", "not measured: no kernels window was recorded", "time_by_layer"),
    ],
)
def test_a_part_of_the_report_is_printed_by_itself_or_why_it_is_not_there(
    tbdprof: Command, recorded: Path, verb: str, title: str, field: str
):
    code, text, said = tbdprof(verb, "a.tbd")
    assert (code, said) == (0, "")
    assert text.startswith(title)

    code, text, said = tbdprof(verb, "a.tbd", "--json")
    assert (code, said) == (0, "")
    document = json.loads(text)
    assert (document[field] is None) == (verb != "memory")
    assert {"schema", "missing"} < set(document)


def test_in_full_the_report_has_more_rows(tbdprof: Command):
    fixture = str(ROOT / "tests" / "fixtures" / "format-1.tbd")
    text, full = (tbdprof("report", fixture, *words)[1] for words in ([], ["--full"]))

    assert len(text.splitlines()) < len(full.splitlines())
    assert "2.bias/step" not in text
    assert "2.bias/step" in full


def test_export_writes_plain_tables(tbdprof: Command, recorded: Path):
    assert tbdprof("export", "a.tbd", "-o", "b.sqlite") == (0, "", "")
    assert tbdprof("export", "a.tbd", "-o", "csv", "--format", "csv") == (0, "", "")

    query = "SELECT requested_bytes FROM allocation WHERE kind = 'allocated'"
    with closing(sqlite3.connect("b.sqlite")) as tables:
        assert tables.execute(query).fetchall() == [(40,), (40,)]
    with Path("csv/allocation.csv").open() as file:
        assert [row["kind"] for row in csv.DictReader(file)].count("freed") == 2
    refused = tbdprof("export", "a.tbd", "-o", "b.sqlite")
    assert refused == (2, "", "tbdprof: b.sqlite exists: choose another name with -o\n")


def test_list_names_the_models_and_what_can_run(tbdprof: Command):
    code, text, said = tbdprof("list")
    assert (code, said) == (0, "")
    assert "resnet50" in text
    assert "25,557,032" in text

    code, text, said = tbdprof("list", "--json")
    assert (code, said) == (0, "")
    assert json.loads(text)["resnet50"]["parameters"] == 25_557_032
    assert json.loads(text)["wgan"]["default_batch"] == {"cpu": 2, "cuda": 64}


def test_the_help_and_the_list_of_models_come_without_what_analyses_import():
    program = "import sys, tbdprof.cli.main as main; main.cli(sys.argv[1:], standalone_mode=False); print(*sys.modules)"
    for word, unneeded in (("--help", {"numpy", "rich", "psutil"}), ("list", {"numpy", "msgspec", "torch"})):
        printed = subprocess.check_output([sys.executable, "-c", program, word], cwd=ROOT, text=True)
        assert not unneeded & set(printed.splitlines()[-1].split()), word


def test_doctor_examines(tmp_path: Path):
    done = spawn("doctor", "--json", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert [each["name"] for each in json.loads(done.stdout)["frameworks"]][:2] == ["torch", "mxnet"]


def test_without_a_command_the_help_is_printed(tbdprof: Command):
    assert tbdprof() == tbdprof("--help")
    assert tbdprof()[0] == 0


def test_a_reader_that_leaves_early_is_borne_in_silence(recorded: Path):
    ours, theirs = os.pipe()
    os.close(ours)
    done = spawn("report", str(recorded), stdout=theirs)
    os.close(theirs)

    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("words", [["report"], ["report", "--json"]])
def test_a_full_disk_under_stdout_is_one_line(recorded: Path, words: list[str]):
    with Path("/dev/full").open("w") as full:
        done = spawn(*words, str(recorded), stdout=full)

    assert (done.returncode, done.stderr) == (1, "tbdprof: cannot write the output: the disk is full\n")


AGAIN = "tbdprof: find the device's peak again"  # on a busy machine


def test_a_run_prints_its_report_to_stdout_and_its_course_to_stderr(tmp_path: Path):
    done = spawn(*SMALL, "--warmup", "2", "--steps", "2", "-o", "a.tbd", cwd=tmp_path)

    assert done.returncode == 0
    assert done.stdout.startswith("resnet50 · 25,557,032 parameters · ")
    assert "does not hold" not in done.stdout
    said = [line.split(" of ")[0] for line in done.stderr.splitlines()]
    assert said.count(AGAIN) <= 1
    assert [line for line in said if line != AGAIN] == [
        "tbdprof: find the device's peak",
        "tbdprof: build resnet50",
        "tbdprof: warm-up: step 0",
        "tbdprof: clean: step 0",
        "tbdprof: memory: step 0",
        "tbdprof: clean: step 0",
        "tbdprof: kernels: step 0",
        "tbdprof: clean: step 0",
        "tbdprof: recorded in a.tbd",
    ]
    again = spawn("report", "a.tbd", cwd=tmp_path)
    assert again.stdout == done.stdout


def test_a_quiet_run_with_json_prints_the_json_and_where_it_is_recorded(tmp_path: Path):
    (tmp_path / "a.tbd").write_text("in the way")
    words = [*SMALL, "--warmup", "2", "--steps", "2", "-o", "a.tbd", "--force", "--json", "-q"]
    done = spawn(*words, env={"PYTHONPATH": os.pathsep.join([QUICK_START, str(ROOT)])}, cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "tbdprof: recorded in a.tbd\n")
    document = json.loads(done.stdout)
    assert document["run"]["steps"] == {"warmup": 2, "clean": 6, "memory": 4, "kernels": 4, "sampled": 0}
    assert document["memory"]["mismatches"] == 0
    assert document["memory"]["at_peak"]["unknown"] == 0
    assert document["throughput"]["samples_per_s"] == pytest.approx(document["throughput"]["unit"]["per_s"])
