"""TF32 on a GPU in TensorFlow: chosen for a run, reported by products of float32 alone, and put back."""

import pytest
import tensorflow as tf

from tbdprof.hooks.on_tensorflow import precision
from tbdprof.hooks.on_tensorflow.flops import works
from tbdprof.hooks.on_tensorflow.flops.operands import Array, Computed


def is_enabled() -> bool:
    return bool(tf.config.experimental.tensor_float_32_execution_enabled())


@pytest.mark.parametrize(("wanted", "enabled"), [("tf32", True), ("fp32", False), ("fp64", False), ("bf16", False)])
def test_only_tf32_computes_in_it_and_what_was_is_put_back(wanted: str, enabled: bool) -> None:
    before = is_enabled()

    put_back = precision.choose(wanted)
    during = is_enabled()
    put_back()

    assert (during, is_enabled()) == (enabled, before)


def test_without_a_gpu_nothing_is_computed_in_tf32() -> None:
    put_back = precision.choose("tf32")
    try:
        assert not precision.is_on()
    finally:
        put_back()


@pytest.mark.parametrize(("capability", "has_it"), [((7, 0), False), ((8, 0), True), ((9, 0), True)])
def test_a_gpu_before_ampere_has_none(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], has_it: bool
) -> None:
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["a GPU"])
    details = {"compute_capability": capability}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    precision._can_be.cache_clear()
    put_back = precision.choose("tf32")
    try:
        assert precision.is_on() is has_it
    finally:
        put_back()
        precision._can_be.cache_clear()


@pytest.mark.parametrize(
    ("kind", "dtype", "expected"),
    [("MatMul", "float32", "tf32"), ("MatMul", "float64", "fp64"), ("Relu", "float32", "fp32")],
)
def test_products_of_float32_are_in_tf32_and_nothing_else(kind: str, dtype: str, expected: str) -> None:
    maps = Array((4, 4), dtype)
    inputs = (maps, maps) if kind == "MatMul" else (maps,)

    work = works.kind_and_work(Computed(kind, inputs, (maps,), in_tf32=True))[1]

    assert work is not None
    assert work.precision == expected
