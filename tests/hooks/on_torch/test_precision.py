"""TF32 on a GPU: chosen for a run, followed by what operators are reported to compute in, and put back."""

from collections.abc import Iterator

import pytest
import torch
from torch._C import _get_fp32_precision_getter, _set_fp32_precision_setter

from tbdprof.facts.records import Operation
from tbdprof.hooks import Setting
from tbdprof.hooks.on_torch import facts, hook, precision

PLACES = (("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"), ("cuda", "all"), ("generic", "all"))
PRODUCTS = (Operation.MATMUL, Operation.CONVOLUTION, Operation.RECURRENT, Operation.ATTENTION)


def state() -> list[str]:
    return [_get_fp32_precision_getter(*place) for place in PLACES]


def in_tf32() -> list[bool]:
    return [precision.is_tf32(operation) for operation in PRODUCTS]


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = state()
    older = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = older
    for place, value in zip(PLACES, before, strict=True):
        _set_fp32_precision_setter(*place, value)


def test_torch_computes_convolutions_and_recurrences_in_tf32_unless_set_otherwise() -> None:
    assert in_tf32() == [False, True, True, False]


@pytest.mark.parametrize("wanted", ["fp32", "fp64", "bf16"])
def test_every_precision_but_tf32_computes_products_of_float32_in_float32(wanted: str) -> None:
    precision.choose(wanted)

    assert in_tf32() == [False] * 4
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (False, False)


def test_tf32_computes_all_products_of_float32_in_it() -> None:
    precision.choose("tf32")

    assert in_tf32() == [True] * 4
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (True, True)


@pytest.mark.parametrize("wanted", ["fp32", "tf32"])
def test_what_was_chosen_is_put_back_in_torchs_older_and_newer_words(wanted: str) -> None:
    before, flags = state(), precision.flags()

    put_back = precision.choose(wanted)
    changed = precision.flags()
    put_back()

    assert changed != flags
    assert (state(), precision.flags()) == (before, flags)


def test_flags_hold_both_words() -> None:
    precision.choose("tf32")

    flags = precision.flags()

    assert {name: flags[name] for name in ("float32_matmul_precision", "cudnn.allow_tf32")} == {
        "float32_matmul_precision": "high",
        "cudnn.allow_tf32": "True",
    }
    assert [flags[f"{name}.fp32_precision"] for name in ("cuda.matmul", "cudnn.conv", "cudnn.rnn")] == ["tf32"] * 3


def test_a_loop_that_used_the_newer_words_is_reported_and_left_as_it_is() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    before = state()
    with pytest.raises(RuntimeError):
        torch.get_float32_matmul_precision()

    flags = precision.flags()

    assert flags["cuda.matmul.fp32_precision"] == "tf32"
    assert "float32_matmul_precision" not in flags
    precision.choose("fp32")()
    assert state() == before


def test_a_choice_holds_where_the_newer_words_were_used() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"

    precision.choose("fp32")

    assert in_tf32() == [False] * 4


def test_the_widest_setting_decides_where_no_narrower_one_does() -> None:
    precision.choose("fp32")
    _set_fp32_precision_setter("cuda", "conv", "none")
    _set_fp32_precision_setter("generic", "all", "tf32")

    assert precision.is_tf32(Operation.CONVOLUTION)


def test_a_run_on_a_gpu_chooses_and_its_end_puts_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "choose_device", lambda wanted: "cuda:0")
    before = state()
    torch_hook = hook()
    torch_hook.prepare(Setting(device="cuda", precision="fp32"))
    try:
        during = in_tf32()
    finally:
        torch_hook.close()

    assert during == [False] * 4
    assert state() == before


@pytest.mark.parametrize("setting", [Setting(device="cpu", precision="fp32"), Setting(device="cpu")])
def test_a_run_on_a_cpu_leaves_a_gpus_precision_alone(setting: Setting) -> None:
    before, torch_hook = state(), hook()
    torch_hook.prepare(setting)
    try:
        assert state() == before
    finally:
        torch_hook.close()


def test_a_loop_that_is_joined_keeps_its_own_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "choose_device", lambda wanted: "cuda:0")
    before, torch_hook = state(), hook()
    torch_hook.prepare(Setting())
    try:
        assert state() == before
    finally:
        torch_hook.close()
