"""`--html`: the page is written where it is asked for, over nothing, and a refusal comes before any work."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from page_stories import FIXTURES

from tbdprof.cli.main import cli
from tbdprof.errors import RecordingFormatError, TbdprofError, UnavailableError, UsageError
from tbdprof.report.page import render

pytest.importorskip("jinja2")


@pytest.fixture(autouse=True)
def light_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "_library", lambda: "/* the library */")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIXTURES / "format-5-torch.tbd", tmp_path / "run.tbd"))


def run(*words: object) -> object:
    return cli.main([str(word) for word in words], standalone_mode=False)


def test_the_page_lies_beside_the_recording_and_stderr_names_it(file: Path, capsys: pytest.CaptureFixture[str]):
    run("report", file, "--html")

    page = file.with_suffix(".html")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert capsys.readouterr() == ("", f"tbdprof: page in {page}\n")
    assert {each.name for each in file.parent.iterdir()} == {"run.tbd", "run.html"}


def test_the_page_goes_where_o_says(file: Path):
    run("report", file, "--html", "-o", file.with_name("other.html"))

    assert file.with_name("other.html").exists()
    assert not file.with_suffix(".html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (lambda file: [file, "--html"], "run.html exists: delete it"),
        (lambda file: [file, "--html", "-o", file.with_suffix(".html")], "exists: choose another name with -o"),
        (lambda file: [file, "-o", file.with_name("new.html")], "-o names the page: add --html"),
        (lambda file: [file, "--html", "--json"], "give one of them"),
        (lambda file: [file, file, "--html"], "the page of one recording: give one file"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_overwritten(
    file: Path, words: Callable[[Path], list[object]], said: str
):
    file.with_suffix(".html").write_text("mine")

    with pytest.raises(UsageError, match=said):
        run("report", *words(file))

    assert file.with_suffix(".html").read_text() == "mine"
    assert not file.with_name("new.html").exists()


def test_a_damaged_recording_leaves_no_page(file: Path):
    file.write_bytes(file.read_bytes()[:1000])

    with pytest.raises(RecordingFormatError):
        run("report", file, "--html")

    assert not file.with_suffix(".html").exists()


@pytest.mark.parametrize("words", [["--", "python", "train.py"], ["resnet50", "--framework", "torch"]])
def test_a_run_that_can_have_no_page_is_refused_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
):
    def lacking() -> None:
        raise UnavailableError("a page needs Plotly")

    monkeypatch.setattr(render, "refuse_without_libraries", lacking)
    with pytest.raises(TbdprofError, match="a page needs Plotly"):
        run("run", "--html", "-o", tmp_path / "a.tbd", *words)

    assert [*tmp_path.iterdir()] == []


def test_force_replaces_the_page_of_an_earlier_run(file: Path):
    from tbdprof.cli import pages

    file.with_suffix(".html").write_text("of the earlier run")

    with pytest.raises(UsageError, match="exists"):
        pages.planned(file)
    page = pages.planned(file, force=True)

    assert page.file.target == file.with_suffix(".html")


def test_a_comparison_has_a_page(file: Path, capsys: pytest.CaptureFixture[str]):
    page = file.with_name("both.html")

    assert run("compare", file, file, "--html", "-o", page) == 0

    assert "<h1>Comparison</h1>" in page.read_text(encoding="utf-8")
    assert capsys.readouterr() == ("", f"tbdprof: page in {page}\n")
    with pytest.raises(UsageError, match="exists"):
        run("compare", file, file, "--html", "-o", page)
    with pytest.raises(UsageError, match="-o names the page: add --html"):
        run("compare", file, file, "-o", file.with_name("new.html"))


LACKING = """
import sys
sys.modules |= dict.fromkeys(("jinja2", "markupsafe", "plotly"))
from tbdprof.cli.main import main
main()
"""


@pytest.mark.parametrize("words", [["report", "{}"], ["compare", "{}", "{}"]])
def test_without_the_libraries_of_pages_all_else_works_and_a_page_is_refused_in_one_line(file: Path, words: list[str]):
    command = [sys.executable, "-c", LACKING, *(word.format(file) for word in words)]

    done = subprocess.run(command, capture_output=True, text=True)
    refused = subprocess.run([*command, "--html"], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("tbdprof: a page needs Jinja2")
    assert refused.stderr.count("\n") == 1
