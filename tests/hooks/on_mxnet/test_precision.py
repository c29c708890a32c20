"""The precision of a GPU's products in MXNet, which has no switch for it: its libraries read the environment."""

import os

import numpy as np
import pytest

from tbdprof.hooks import Setting
from tbdprof.hooks.on_mxnet import hook

VARIABLE = "NVIDIA_TF32_OVERRIDE"


@pytest.mark.parametrize(("wanted", "expected"), [("fp32", "0"), ("fp64", None), (None, None)])
def test_float32_forbids_tf32_until_the_end(
    monkeypatch: pytest.MonkeyPatch, wanted: str | None, expected: str | None
) -> None:
    monkeypatch.setitem(vars(np), "bool", bool)
    monkeypatch.delenv(VARIABLE, raising=False)
    watched = hook()

    watched.set_environment(Setting(precision=wanted))
    during = os.environ.get(VARIABLE)
    watched.close()

    assert (during, os.environ.get(VARIABLE)) == (expected, None)
