"""What the command line does with streams that are closed or narrow, with hostile words, and with its own defects."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_loop import WHOLE, profiler, train

from tbdprof.cli import reporting, streams
from tbdprof.facts.file.placing import save
from tbdprof.loop.version import version
from tbdprof.report import export, json_report, terminal

ROOT = Path(__file__).parents[2]
Command = Callable[..., tuple[int, str, str]]
EVIL = "\x1b]0;owned\x07[red]\n\u202e\udc80"
SHOWN = r"\x1b]0;owned\x07[red]\n\u202e\udc80"


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a recording with a model whose name no narrow encoding has, and go to its folder."""
    prof, hook = profiler(WHOLE)
    with prof:
        train(prof, hook.clock, 20)
    prof._recorder.update(model="modèle·λ" + EVIL)
    save(prof.recording, tmp_path / "a.tbd")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "a.tbd"


def shell(line: str, **environment: str) -> tuple[int, bytes, bytes]:
    """Run a line of a shell in which `tbdprof` is the command line: exit code, stdout, stderr."""
    words = f'tbdprof() {{ "{sys.executable}" -m tbdprof "$@"; }}; {line}'
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(["bash", "-c", words], env=variables, capture_output=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_a_closed_output_is_one_line_and_a_closed_standard_error_is_no_matter(recorded: Path):
    before = recorded.read_bytes()

    assert shell("tbdprof report a.tbd >&-") == (1, b"", b"tbdprof: cannot write the output: it is closed\n")
    code, text, said = shell("tbdprof report a.tbd 2>&-")
    assert (code, said) == (0, b"")
    assert SHOWN.encode() in text
    assert shell("tbdprof report none.tbd 2>&-") == (1, b"", b"")
    assert shell("tbdprof report a.tbd <&- >&- 2>&-") == (1, b"", b"")
    assert shell("tbdprof --help >&-") == (1, b"", b"tbdprof: cannot write the output: it is closed\n")
    assert recorded.read_bytes() == before


def test_a_reader_that_takes_one_line_sees_it_and_nothing_is_said(recorded: Path):
    code, text, said = shell("set -o pipefail; tbdprof report a.tbd --full | head -1")

    assert code in (0, 1)  # the report fits into the pipe or not
    assert text.startswith("modèle·λ".encode())
    assert said == b""


@pytest.mark.parametrize(
    ("environment", "shown"),
    [
        ({"PYTHONIOENCODING": "ascii"}, rb"mod\xe8le-\u03bb"),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, rb"mod\xe8le-\u03bb"),
        ({"PYTHONIOENCODING": "latin-1"}, "modèle·".encode("latin-1") + rb"\u03bb"),
        ({"PYTHONIOENCODING": "utf-8:strict"}, "modèle·λ".encode()),
    ],
)
def test_an_encoding_that_lacks_a_character_gets_one_that_is_alike(
    recorded: Path, environment: dict[str, str], shown: bytes
):
    code, text, said = shell("tbdprof report a.tbd; tbdprof report $'no\\xff\\e[2Jne'", **environment)

    assert code == 1
    assert shown in text
    assert said == rb"tbdprof: cannot read no\udcff\x1b[2Jne: No such file or directory" + b"\n"


@pytest.mark.parametrize(
    ("place", "verb"),
    [
        ((reporting, "summarize"), ["report"]),
        ((terminal, "render"), ["report", "--full"]),
        ((terminal, "render_part"), ["kernels"]),
        ((terminal, "render_part"), ["layers"]),
        ((json_report, "render"), ["memory", "--json"]),
        ((export, "to_csv"), ["export", "-o", "x", "--format", "csv"]),
        ((export, "to_sqlite"), ["export", "-o", "x"]),
    ],
)
def test_a_defect_is_one_line_with_the_version_and_a_traceback_only_if_asked_for(
    recorded: Path, typed: Command, monkeypatch: pytest.MonkeyPatch, place: tuple[object, str], verb: list[str]
):
    def fails(*arguments: object, **options: object) -> None:
        raise KeyError("planted\nsecond line")

    monkeypatch.setattr(*place, fails)
    line = f"tbdprof {version()} failed in `tbdprof {verb[0]}`: KeyError: 'planted\\nsecond line' ("
    code, out, said = typed(*verb, "a.tbd")

    assert code == 1
    if "--json" in verb:
        assert (json.loads(out)["error"].startswith(line), said) == (True, "")
        assert json.loads(out)["hint"] == "please report this line"
    else:
        assert out == ""
        assert said.startswith(f"tbdprof: {line}")
        assert said.endswith("; please report this line\n")
        assert said.count("\n") == 1
    assert "Traceback" in typed(*verb, "a.tbd", "-v")[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "resnet50", "--framework", "torch", "--seed", str(2**64)], "seed is 18446744073709551616: give "),
        (["run", "resnet50", "--framework", "torch", "--seed", str(2**32)], "seed is 4294967296: give 4294967295 or "),
        (["train-check", "resnet50", "--framework", "torch", "--seed", str(10**400)], "seed is 1000"),
        (["train-check", "resnet50", "--framework", "torch", "--seed", "-1"], "seed is -1: give 0 or more"),
        (["run", "resnet50", "--framework", "torch", "--batch-size", str(10**400)], "batch size is 1000"),
        (["run", "resnet50", "--framework", "torch", "--image-size", str(10**400)], "--image-size is '1000"),
        (["run", "resnet50", "--framework", "torch", "--image-size", "9" * 5000], "--image-size is '9999"),
        *(
            (["run", "resnet50", "--framework", "torch", option, value], f"Invalid value for '{option}': ")
            for option in ("--threads", "--steps", "--warmup", "--max-warmup", "--repeat", "--power-period")
            for value in (str(10**10), str(10**400), "9" * 5000, "-1", "", "nan", "1e3")
        ),
        (["run", "", "--framework", "torch"], "unknown model ''"),
        (["run", "resnet50", "--framework", ""], "resnet50 is not written for ''"),
        (["run", "resnet50", "--framework", "torch", "--precision", ""], "Invalid value for '--precision': ''"),
        (["run", "resnet50", "--framework", "torch", "--data", ""], "--data is empty"),
        (["run", "resnet50", "--framework", "torch", "-o", ""], "Invalid value for '-o' / '--output': it is empty"),
        (["run", "resnet50", "--framework", "torch", "-o", "a" * 300], "the file's name has 300 bytes"),
        (["run", "resnet50", "--framework", "torch", "--variant", EVIL], f"--variant is '{SHOWN}'"),
        (["run", "-o", "a" * 300, "--", "true"], "the file's name has 300 bytes"),
        (["run", "--", ""], "cannot start : "),
        (["run", EVIL], "unknown model '"),
        (["report", ""], "Invalid value for 'FILE...': it is empty"),
        (["export", "a.tbd", "-o", ""], "Invalid value for '-o' / '--output': it is empty"),
        (["export", "a.tbd", "-o", "a" * 300], "the file's name has 300 bytes"),
        (["export", "a.tbd", "-o", "x", "--format", ""], "Invalid value for '--format': ''"),
        (["doctor", "--device", ""], "unknown device ''"),
        (["doctor", "--device", EVIL], f"unknown device '{SHOWN}'"),
        (["train-check", "", "--framework", "torch"], "unknown model ''"),
        ([EVIL], f"No such command '{SHOWN}'"),
        ([""], "No such command ''"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else "",
)
def test_nonsense_is_one_line_and_exit_code_2_and_as_json_an_object(
    recorded: Path, typed: Command, words: list[str], said: str
):
    code, out, line = typed(*words)

    assert (code, out) == (2, "")
    assert line.startswith("tbdprof: ")
    assert said in line.replace(r"\\", "\\")
    assert line.count("\n") == 1
    assert line[:-1].isprintable()
    if words[0] in ("run", "report", "doctor", "train-check"):
        code, out, line = typed(words[0], "--json", *words[1:])
        assert (code, line) == (2, "")
        assert set(json.loads(out)) == {"error", "hint"}


@pytest.mark.parametrize("name", ["a" * 300, "no\x1b[2J\nfile", "no\udcfffile"])
def test_a_file_of_any_name_that_is_not_there_is_one_line(recorded: Path, typed: Command, name: str):
    verbs = (
        ["report"],
        ["kernels"],
        ["layers"],
        ["memory"],
        ["export", "-o", "x"],
        ["observations"],
        ["compare", name],
    )
    for verb in verbs:
        code, out, line = typed(*verb, name)

        assert (code, out) == (2 if "compare" in verb else 1, "")
        assert line.startswith("tbdprof: cannot read ")
        assert line[:-1].isprintable()


@pytest.mark.parametrize(
    ("message", "error", "hint"),
    [
        ("a.tbd exists: choose another name", "a.tbd exists", "choose another name"),
        ("cannot write a: Is a file; choose another", "cannot write a: Is a file", "choose another"),
        (
            "torch is not installed: pip install 'tbdprof[torch]'",
            "torch is not installed",
            "pip install 'tbdprof[torch]'",
        ),
        ("cannot read b.tbd: No such file", "cannot read b.tbd: No such file", None),
    ],
)
def test_what_to_do_is_told_apart_from_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], message: str, error: str, hint: str | None
):
    monkeypatch.setattr(sys, "argv", ["tbdprof", "report", "--json"])

    assert streams.fail(message, 7) == 7
    assert json.loads(capsys.readouterr().out) == {"error": error, "hint": hint}
