import os

import pytest

from tbdprof.hooks.environment import Environment


def test_variables_are_put_back_as_they_were_before_their_first_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TBD_KNOWN", "before")
    monkeypatch.delenv("TBD_NEW", raising=False)
    environment = Environment()
    for name in ("TBD_KNOWN", "TBD_NEW"):
        environment.set(name, "one")
        environment.set(name, "two")
    assert os.environ["TBD_KNOWN"] == os.environ["TBD_NEW"] == "two"
    environment.put_back()
    assert os.environ["TBD_KNOWN"] == "before"
    assert "TBD_NEW" not in os.environ


def test_what_was_put_back_is_the_scripts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TBD_KNOWN", "before")
    environment = Environment()
    environment.set("TBD_KNOWN", "ours")
    environment.put_back()
    monkeypatch.setenv("TBD_KNOWN", "the script's")
    environment.put_back()
    assert os.environ["TBD_KNOWN"] == "the script's"
