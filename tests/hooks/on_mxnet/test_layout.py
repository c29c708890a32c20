"""Where MXNet 1.9.1 keeps what it does not report, on objects laid out as its builds lay them out."""

import ctypes
import importlib.util
import threading
from collections.abc import Iterator

import pytest

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("mxnet is not installed", allow_module_level=True)

import numpy as np

vars(np).setdefault("bool", bool)  # MXNet reads it

import mxnet as mx  # noqa: E402

from tbdprof.errors import UnavailableError  # noqa: E402
from tbdprof.hooks.on_mxnet.kernels.window import KernelsWindow  # noqa: E402
from tbdprof.hooks.on_mxnet.session import layout, stored_values  # noqa: E402
from tbdprof.hooks.on_mxnet.session.calls import Stored  # noqa: E402
from tbdprof.hooks.on_mxnet.session.engine import Push  # noqa: E402

CHUNK = [*range(100, 107), 7, 108, 9, 110]  # words; with oneDNN the tenth is the variable, without it the eighth


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    layout.variable_offset.cache_clear()
    yield
    layout.variable_offset.cache_clear()


@pytest.mark.parametrize(("has_onednn", "variable"), [(True, 9), (False, 7)])
def test_an_arrays_variable_is_behind_its_layout_where_there_is_onednn(
    monkeypatch: pytest.MonkeyPatch, has_onednn: bool, variable: int
) -> None:
    monkeypatch.setattr(layout.mx.runtime.Features, "is_enabled", lambda _self, name: has_onednn and name == "MKLDNN")
    chunk = (ctypes.c_size_t * len(CHUNK))(*CHUNK)
    array = ctypes.c_size_t(ctypes.addressof(chunk))

    assert layout.variable(ctypes.addressof(array)) == variable


def test_an_array_of_nothing_has_no_variable() -> None:
    assert layout.variable(ctypes.addressof(ctypes.c_size_t(0))) == 0


def test_a_variable_that_was_not_written_is_of_another_layout() -> None:
    array, _ = layout.probe_array()

    layout.prove_variable(array, {layout.variable(array.handle.value)})
    with pytest.raises(UnavailableError, match=r"another way than 1\.9\.1"):
        layout.prove_variable(array, {layout.variable(array.handle.value) + 8})


def test_what_another_thread_asks_for_while_the_layout_is_proved_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    array, size_bytes = layout.probe_array()
    monkeypatch.setattr(layout, "probe_array", lambda: (array, size_bytes))
    mine = Push(0, "_ones", threading.get_ident(), (), (layout.variable(array.handle.value),), None)
    other = Push(1, "Convolution", threading.get_ident() + 1, (), (5,), None)
    window = KernelsWindow.__new__(KernelsWindow)
    window._engine = Asked([mine, other])

    window._prove_variables()

    assert window._engine.pushes == [other]


class Asked:
    """An engine that was asked for something."""

    def __init__(self, pushes: list[Push]) -> None:
        self.pushes = pushes

    def collect(self) -> str:
        return ""


def test_stored_values_are_asked_for_without_waiting_and_answered_in_the_order_of_the_engine() -> None:
    """The array is written after the question: the answer is how many values there were before."""
    whole = mx.nd.sparse.csr_matrix(([1.0, 2.0, 3.0], [0, 2, 4], [0, 1, 3]), shape=(2, 5))
    first, then = Stored(), Stored()
    stored_values.prove()

    stored_values.ask(whole.handle.value, first)
    mx.nd.sparse.csr_matrix(([1.0], [0], [0, 1, 1]), shape=(2, 5)).copyto(whole)
    stored_values.ask(whole.handle.value, then)
    mx.nd.waitall()

    assert (first.values, then.values) == (3, 1)
    assert stored_values._asked == {}


def test_chunks_of_another_layout_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stored = mx.nd.sparse.csr_matrix(([1.0], [0], [0, 1, 1]), shape=(2, 5)), Stored()
    monkeypatch.setattr(stored_values, "_SHAPE_OFFSET", stored_values._SHAPE_OFFSET - 8)
    stored_values._is_known.cache_clear()
    try:
        stored_values.prove()
        stored_values.ask(whole.handle.value, stored)
    finally:
        stored_values._is_known.cache_clear()
    mx.nd.waitall()

    assert stored.values is None
