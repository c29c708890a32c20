"""What a session records of TensorFlow, and what it leaves out."""

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
sessions = pytest.importorskip("tbdprof.hooks.on_tensorflow.session.session")


def recorded(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return the file that a session of one call of a function leaves."""
    kept: list[bytes] = []
    read = sessions.xplane.read

    def keeping(data: bytes, *arguments: Any, **named: Any) -> Any:
        kept.append(data)
        return read(data, *arguments, **named)

    monkeypatch.setattr(sessions.xplane, "read", keeping)
    given = tf.ones((64, 64))
    function = tf.function(lambda given: tf.add_n([tf.linalg.matmul(given, given + number) for number in range(8)]))
    function(given)
    session = sessions.Session()
    session.start()
    function(given)
    trace = session.stop()
    assert sum(op.op in ("MatMul", "_MklMatMul", "_FusedMatMul") for op in trace.ops) == 8
    return kept[-1]


def test_what_thread_pools_queue_and_run_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert b"ThreadpoolListener" not in recorded(monkeypatch)


def test_without_our_call_it_would_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_leave_out_thread_pools", lambda: None)
    assert b"ThreadpoolListener" in recorded(monkeypatch)
