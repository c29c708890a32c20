"""Text of a recording stays text, whatever it is: on a terminal, in CSV, in SQLite, in JSON and in refusals."""

import csv
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from fake_loop import WHOLE, profiler, train
from report_results import measured

from tbdprof.analysis.summary import summarize
from tbdprof.errors import UsageError
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Optimizer, Parameter, Strings
from tbdprof.report import export, json_report, terminal
from tbdprof.report.json_text import json_text
from tbdprof.report.plain import plain
from tbdprof.results.summary import Summary

CLEAR, TITLE, C1 = "\x1b[2J", "\x1b]0;owned\x07", "\x9b31m"
EVIL = f"{CLEAR}{TITLE}{C1}\r\n\u202egnp\u2066\u200b\u2028\x00\udc80[red]b[/red]"
SHOWN = r"\x1b[2J\x1b]0;owned\x07\x9b31m\r\n\u202egnp\u2066\u200b\u2028\x00\udc80[red]b[/red]"


@pytest.fixture
def recording() -> Recording:
    """Return a whole recording, each of whose free texts is one that means harm."""
    prof, hook = profiler(WHOLE)
    with prof:
        train(prof, hook.clock, 20)
    found = prof.recording
    texts = found.strings.since(0)
    found.strings = Strings(tuple(text if text.startswith(("[", "{", "cpu")) else EVIL + text for text in texts))
    harm = dict.fromkeys(("model", "framework_version", "device_name", "unit", "script", "ended_by"), EVIL)
    evil = Optimizer(EVIL, (EVIL,), {EVIL: float("nan")})
    weight = Parameter(EVIL, (25,), 4, True)
    harm |= {"precision_flags": {EVIL: EVIL}, "options": {EVIL: EVIL}}  # type: ignore[dict-item]
    found.run = replace(found.run, **harm, complete=False, parameters=(weight,), optimizers=(evil,))
    found.missing |= {EVIL: EVIL, "threads": EVIL}
    return found


def everything(recording: Recording) -> Summary:
    """Return the recording's summary with results of all kinds, whose names mean harm, too."""
    summary = measured(summarize(recording))
    harmful = {
        "groups": tuple(replace(each, name=EVIL + each.name, layers=(EVIL,)) for each in summary.groups or ()),
        "layers": tuple(replace(each, layer=EVIL) for each in summary.layers or ()),
    }
    return replace(summary, recording=recording, **harmful)


def test_the_terminal_shows_what_cannot_be_printed_and_obeys_nothing(recording: Recording):
    summary = everything(recording)
    texts = [terminal.render(summary, width=3000, full=True)]
    texts += [terminal.render_part(summary, part, width=3000) for part in terminal.PARTS]

    for text in texts:
        assert text.replace("\n", "").isprintable()
        assert SHOWN in text
    colored = terminal.render(summary, width=3000, color=True)
    assert CLEAR not in colored
    assert TITLE not in colored
    assert SHOWN in colored


def test_a_plain_summary_is_the_same_where_all_its_text_is_plain():
    prof, hook = profiler(WHOLE)
    with prof:
        train(prof, hook.clock, 20)
    summary = summarize(prof.recording)

    assert plain(summary).recording is summary.recording
    assert json_report.render(plain(summary)) == json_report.render(summary)


def test_json_is_json_in_ascii_that_gives_the_text_back(recording: Recording):
    text = json_report.render(everything(recording))

    assert text.replace("\n", "").isprintable()
    assert text.isascii()
    document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert document["run"]["model"] == EVIL
    assert document["missing"][EVIL] == EVIL


def test_a_number_that_is_not_finite_is_null_in_json():
    values = {"a": float("nan"), "b": [float("inf"), 1.5], "c": (-float("inf"),), "d": {"e": float("nan")}}

    assert json.loads(json_text(values)) == {"a": None, "b": [None, 1.5], "c": [None], "d": {"e": None}}


def test_csv_and_sqlite_keep_the_text_and_no_cell_acts(recording: Recording, tmp_path: Path):
    export.write(recording, tmp_path / "csv", "csv")
    export.write(recording, tmp_path / "a.sqlite", "sqlite")

    for file in (tmp_path / "csv").iterdir():
        text = file.read_bytes().decode()
        assert text.replace("\r\n", "").isprintable(), file
        with file.open(newline="", encoding="utf-8") as rows:
            assert len({len(row) for row in csv.reader(rows)}) == 1
    owners = (tmp_path / "csv" / "owner.csv").read_text(encoding="utf-8")
    assert SHOWN in owners
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as tables:
        (name,) = tables.execute("SELECT name FROM owner LIMIT 1").fetchone()
        (settings,) = tables.execute("SELECT settings FROM optimizer").fetchone()
    assert name.startswith(EVIL.replace("\udc80", r"\udc80"))
    assert json.loads(settings) == {EVIL: None}


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        *((f"{first}1+1", f"'{first}1+1") for first in "=+-@＝＋－＠"),
        *((f"{first}=1", f"'{shown}=1") for first, shown in (("\t", r"\t"), ("\r", r"\r"), ("\n", r"\n"))),
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("  =1+1", "'  =1+1"),
        ("-", "'-"),
        ("conv1", "conv1"),
        ("a=b", "a=b"),
        ("", ""),
        *((number, number) for number in ("-1", "+2.5", "-1e-05", "12")),
    ],
)
def test_a_cell_that_a_spreadsheet_would_compute_begins_with_an_apostrophe(tmp_path: Path, text: str, cell: str):
    recording = profiler()[0].recording
    recording.missing["a"] = text
    export.write(recording, tmp_path / "csv", "csv")

    with (tmp_path / "csv" / "missing.csv").open(newline="", encoding="utf-8") as rows:
        assert [*csv.reader(rows)][1] == ["a", cell]


def test_numbers_stay_numbers_in_csv(recording: Recording, tmp_path: Path):
    export.write(recording, tmp_path / "csv", "csv")

    with (tmp_path / "csv" / "step.csv").open(newline="", encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            assert all(float(cell) == float(cell) for cell in row.values())


def test_a_refusal_is_one_line_whatever_a_file_is_called(tmp_path: Path):
    recording = profiler()[0].recording
    name = EVIL.translate({0: None, ord("/"): None})
    (tmp_path / name).touch()

    with pytest.raises(UsageError) as refused:
        export.write(recording, tmp_path / name, "csv")
    assert str(refused.value).isprintable()
    assert r"\x1b[2J" in str(refused.value)
    with pytest.raises(UsageError, match="File name too long"):
        export.write(recording, tmp_path / ("a" * 300), "csv")
