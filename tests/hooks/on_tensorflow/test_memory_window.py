"""A memory window of TensorFlow ends, whatever is raised as it does."""

from types import SimpleNamespace

import pytest

memory = pytest.importorskip("tbdprof.hooks.on_tensorflow.memory.window")


def test_what_is_raised_as_the_allocator_is_asked_keeps_nothing_from_being_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[str] = []

    def interrupted(device: str) -> None:
        raise KeyboardInterrupt(device)

    monkeypatch.setattr(memory.allocator, "levels", interrupted)
    window = memory.MemoryWindow.__new__(memory.MemoryWindow)
    window._is_open, window._is_done = True, False
    window._recorded = SimpleNamespace(device="cuda:0")
    watched = SimpleNamespace(variables=list)
    window._watch = SimpleNamespace(reads=list, watched=watched, close_window=lambda: ended.append("watch"))
    window._log = SimpleNamespace(asked=[], close=lambda: ended.append("log"))
    window._session = SimpleNamespace(stop=lambda: ended.append("session"))

    with pytest.raises(KeyboardInterrupt, match="cuda:0"):
        window.stop()

    assert ended == ["watch", "log", "session"]
