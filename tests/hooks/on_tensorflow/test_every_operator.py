"""A session reports every operator that runs, however often it ran before."""

import ctypes

import pytest
import tensorflow as tf

from tbdprof.hooks.on_tensorflow.session import session as sessions
from tbdprof.hooks.on_tensorflow.session.session import Session

RUNS = 150  # by then the executor thinks nearly all of them cheap


@tf.function
def small_steps(x: tf.Tensor) -> tf.Tensor:
    """Take 8 products and 8 sums, each too small to cost anything."""
    for _ in range(8):
        x = tf.sqrt(tf.tanh(x) * 1.5 + 1.0)
    return x


def traced() -> int:
    """Return how many products and sums a session reports of one run."""
    session = Session()
    session.start()
    small_steps(tf.ones(3))
    return sum(op.op in ("Mul", "AddV2") for op in session.stop().ops)


def test_operators_that_ran_often_are_still_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    first = traced()
    for _ in range(RUNS):
        small_steps(tf.ones(3))

    assert first == traced() == 16
    monkeypatch.setattr(sessions, "_trace_cheap_operators", lambda: False)
    assert traced() < 16


def test_a_build_without_the_level_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_LEVEL", "no_such_symbol")
    session = Session()
    session.start()

    assert session.stop().leaves_out is True


def test_a_session_of_someone_elses_has_its_own_level_after_ours(tmp_path: object) -> None:
    session = Session()
    session.start()
    assert session.stop().leaves_out is False

    tf.profiler.experimental.start(str(tmp_path))
    library = ctypes.CDLL(f"{tf.sysconfig.get_lib()}/{sessions._LIBRARY}")
    level = ctypes.c_int.in_dll(library, sessions._LEVEL).value
    tf.profiler.experimental.stop()
    assert level == 2
