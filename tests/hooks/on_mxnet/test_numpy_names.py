"""The names of numpy that MXNet reads as it is imported; a module stands in for numpy 2 where numpy 1 is installed."""

from types import ModuleType

import numpy as np
import pytest

from tbdprof.hooks.on_mxnet import numpy_names

READ = "PZERO NZERO NINF PINF NAN NaN Inf alltrue sometrue in1d mirr msort npv pmt ppmt pv rate trapz round_ product"


@pytest.fixture
def numpy_2(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a numpy without the names, but for one that is still there."""
    new = ModuleType("numpy")
    kept = {name: value for name, value in vars(np).items() if name not in READ.split()}
    vars(new).update({**kept, "__version__": "2.4.6", "trapezoid": sum, "in1d": "numpy's own"})
    monkeypatch.setattr(numpy_names, "np", new)
    return new


def test_numpy_2_has_the_names_while_mxnet_is_imported_and_not_after(numpy_2: ModuleType) -> None:
    before = {**vars(numpy_2)}

    with numpy_names.given_back():
        assert {*READ.split()} <= vars(numpy_2).keys()
        assert numpy_2.in1d == "numpy's own"
        assert numpy_2.alltrue([[1, 2], [0, 1]], axis=0).tolist() == [False, True]
        assert numpy_2.msort([[3, 1], [2, 4]]).tolist() == [[2, 1], [3, 4]]
        assert str(numpy_2.NZERO) == "-0.0"
        with pytest.raises(RuntimeError, match=r"^numpy has no pmt since version 1\.20: .* numpy-financial$"):
            numpy_2.pmt(0.1, 10, 1000)

    assert vars(numpy_2).keys() == before.keys()


def test_the_names_go_also_if_the_import_fails(numpy_2: ModuleType) -> None:
    before = {*vars(numpy_2)}

    with pytest.raises(ImportError), numpy_names.given_back():
        raise ImportError

    assert {*vars(numpy_2)} == before


def test_numpy_1_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "__version__", "1.26.4")
    before = {*vars(np)}

    with numpy_names.given_back():
        assert {*vars(np)} == before
