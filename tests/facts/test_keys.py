"""The keys of reasons and of remarks: text with a name, the same in code and in files."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from make import run

from tbdprof.facts.file.placing import save
from tbdprof.facts.file.reading import load
from tbdprof.facts.keys import ReasonFor, RemarkOn, is_remark, of_window
from tbdprof.facts.recording import Recording

ROOT = Path(__file__).parents[2]
REPORTING = ("hooks", "tbdprof/collect", "tbdprof/loop", "tbdprof/launch", "tbdprof/facts")
METHODS = {"get", "setdefault"}


def bare_keys(source: str) -> Iterator[str]:
    """Yield every key of something called `missing` that is written as plain text."""
    for node in ast.walk(ast.parse(source)):
        owner, key = None, None
        if isinstance(node, ast.Subscript):
            owner, key = node.value, node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            owner, key = node.func.value, node.args[0]
        if owner is not None and isinstance(key, ast.Constant) and ast.unparse(owner).endswith("missing"):
            yield str(key.value)


def test_what_is_reported_has_a_key_of_the_enums() -> None:
    sources = [path for folder in REPORTING for path in (ROOT / folder).rglob("*.py")]

    assert len(sources) > 100
    assert {str(path): found for path in sources if (found := [*bare_keys(path.read_text())])} == {}


@pytest.mark.parametrize(
    "source", ["self._missing['x'] = 1", "recording.missing.get('x')", "missing.setdefault('x', 1)"]
)
def test_a_planted_bare_key_is_found(source: str) -> None:
    assert [*bare_keys(source)] == ["x"]


@pytest.mark.parametrize("key", [*ReasonFor, *RemarkOn])
def test_a_key_is_its_text(key: str) -> None:
    text = "".join(key)

    assert (str(key), f"{key}", repr(key), {key: 1}) == (text, text, repr(text), {text: 1})
    assert json.dumps({key: key}) == json.dumps({text: text})


def test_a_key_is_of_a_reason_or_of_a_remark() -> None:
    assert not {*map(str, ReasonFor)} & {*map(str, RemarkOn)}
    assert all(map(is_remark, RemarkOn))
    assert not any(map(is_remark, ReasonFor))
    assert is_remark(of_window(RemarkOn.TRACE, "sampled"))
    assert of_window(RemarkOn.TRACE, "sampled") == "trace (sampled)"


def test_a_file_keeps_the_text(tmp_path: Path) -> None:
    recording = Recording(run())
    recording.missing |= {ReasonFor.PEAKS: "no probe", RemarkOn.THREADS: "they cannot join"}
    save(recording, tmp_path / "run.tbd")

    again = load(tmp_path / "run.tbd")

    assert again.missing == {"peaks": "no probe", "threads": "they cannot join"}
    assert {type(key) for key in again.missing} == {str}
    assert again.remarks == {"threads": "they cannot join"}
