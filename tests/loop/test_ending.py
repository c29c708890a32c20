"""Signals that end a run become exceptions, but for those that come amid an import."""

import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tbdprof.loop import ending

NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
# A module that sends a signal while it is imported.
IMPORTED = """
import signal
signal.raise_signal({})
whole = True
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "sends_a_signal.py"
    sys.modules.pop("sends_a_signal", None)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_ends_the_block_with_its_name_and_the_handlers_are_as_before(number: signal.Signals):
    before = [signal.getsignal(each) for each in NUMBERS]
    with pytest.raises(KeyboardInterrupt) as caught, ending.raised():
        signal.raise_signal(number)

    assert ending.number(caught.value) == number
    expected = "KeyboardInterrupt" if number == signal.SIGINT else f"ended by {number.name}"
    assert ending.reason(caught.value) == expected
    assert [signal.getsignal(each) for each in NUMBERS] == before


def test_what_is_saved_after_the_first_signal_is_not_cut_short_by_the_next():
    saved = []

    def train() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGHUP)
            saved.append(True)

    with pytest.raises(ending.Terminated), ending.raised():
        train()

    assert saved == [True]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_amid_an_import_comes_after_it(module: Path, number: signal.Signals):
    module.write_text(IMPORTED.format(int(number)))

    def train() -> None:
        import_module("sends_a_signal")
        signal.pause()

    with pytest.raises(KeyboardInterrupt) as caught, ending.raised():
        train()

    assert sys.modules["sends_a_signal"].whole
    assert ending.number(caught.value) == number


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending.raised():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
